#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/dump/stack_text.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;

constexpr size_t kMaxShownFunction = 100;

// Whose a frame is.
enum class Owner {
  kNobody,       // waits, or calls: tells a user nothing
  kInterpreter,  // Python's own C code: likewise, but there is a user's line above, unseen
  kLibrary,
  kUser,
};

// Of Python's own library.
constexpr string_view kPythonWaits =
    "threading.py selectors.py contextlib.py functools.py socket.py runpy.py asyncio/ concurrent/ "
    "multiprocessing/";
// Of installed packages: what stands between a call of PyTorch's and its caller, and our own.
constexpr string_view kPythonBetween =
    "torch/distributed/c10d_logger.py torch/utils/_contextlib.py torch/nn/modules/module.py "
    "ddprun/";

// The C library's calls that wait, and what starts threads and programs. Words between blanks.
constexpr string_view kSystemNames =
    " _start start_thread clone clone3 __clone __clone3 nanosleep __nanosleep usleep sleep __sleep "
    "clock_nanosleep __clock_nanosleep pause poll __poll ppoll select pselect __select epoll_wait "
    "epoll_pwait read __read pread readv recv __recv recvfrom recvmsg __recvmsg accept accept4 "
    "connect send sendto sendmsg write __write writev syscall wait wait4 __wait4 waitpid waitid "
    "sigtimedwait __sigtimedwait sigwait sigsuspend __sigsuspend fsync fdatasync ioctl open openat "
    "open64 __open64 flock lockf lockf64 __lockf64 sched_yield __sched_yield ";
constexpr string_view kSystemPrefixes =
    "__libc_ __GI_ pthread_ __pthread ___pthread __futex futex_ __lll_lock lll_ sem_ __new_sem "
    "do_futex __internal_syscall __syscall_c __gthread __interceptor_ ___interceptor_";
// What calls those within the C and C++ libraries.
constexpr string_view kWaitingPrefixes =
    "_IO_ new_do_write outstring_func __vfprintf_internal __fopen_internal "
    "__gnu_cxx::stdio_sync_filebuf std::condition_variable std::__ std::this_thread std::thread "
    "std::mutex std::unique_lock "
    "std::future std::lock_guard __tsan:: __asan:: __sanitizer:: absl:: ddp::internal::";
constexpr string_view kInterpreterPrefixes =
    "_Py PyEval_ PyObject_ PyThread_ PyRun_ Py_ PyImport_ PyVectorcall pymain_ run_mod run_eval "
    "method_vectorcall cfunction_ object_vacall slot_tp_ lock_PyThread acquire_timed thread_run "
    "pythread_ time_sleep pysleep builtin_ vectorcall_ function_code_";
constexpr string_view kLibraryPrefixes =
    "ddp:: ddp_ c10d:: c10:: at:: torch:: gloo:: nccl cuda tensorpipe:: MPI_ PMPI_ grpc uv_ uv__ "
    "THP pybind11:: std:: boost::";

bool StartsWithWordOf(string_view words, string_view name) {
  for (const string_view word : absl::StrSplit(words, ' ')) {
    if (absl::StartsWith(name, word)) return true;
  }
  return false;
}

// Whether it is a call that waits in the kernel, or one around it.
bool IsSystemFrame(string_view name) {
  return (!absl::StrContains(name, ' ') &&
          absl::StrContains(kSystemNames, absl::StrCat(" ", name, " "))) ||
         StartsWithWordOf(kSystemPrefixes, name);
}

bool IsInterpreterFrame(string_view name) { return StartsWithWordOf(kInterpreterPrefixes, name); }

bool IsPythonFile(string_view file) {
  return absl::EndsWith(file, ".py") || absl::EndsWith(file, ".pyx") || absl::StartsWith(file, "<");
}

// Behind the last "lib/python3.11/" of `file`; empty: it is none of Python's own.
string_view BehindStandardLibrary(string_view file) {
  const size_t at = file.rfind("/lib/python");
  if (at == string_view::npos) return "";
  const size_t slash = file.find('/', at + 11);
  return slash == string_view::npos ? "" : file.substr(slash + 1);
}

// Behind "site-packages/" or "dist-packages/"; empty: it is in none.
string_view BehindPackages(string_view file) {
  for (const string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(folder);
    if (at != string_view::npos) return file.substr(at + folder.size());
  }
  return "";
}

Owner OwnerOfPython(const Frame& frame) {
  if (absl::StartsWith(frame.file, "<frozen ")) return Owner::kNobody;
  const string_view package = BehindPackages(frame.file);
  if (!package.empty()) {
    return StartsWithWordOf(kPythonBetween, package) ? Owner::kNobody : Owner::kLibrary;
  }
  const string_view standard = BehindStandardLibrary(frame.file);
  if (standard.empty()) return Owner::kUser;
  return StartsWithWordOf(kPythonWaits, standard) ? Owner::kNobody : Owner::kLibrary;
}

// `function` without "(int, char)" behind it and "void " before it.
string_view NameOf(string_view function) {
  int angles = 0;
  size_t begin = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    const string_view rest = function.substr(i);
    if (absl::StartsWith(rest, "(anonymous namespace)")) {
      i += 20;
    } else if (absl::StartsWith(rest, "operator") && i > 0 && function[i - 1] == ':') {
      return function.substr(begin);  // what follows may be anything
    } else if (rest[0] == '<' || rest[0] == '{') {
      ++angles;
    } else if (rest[0] == '>' || rest[0] == '}') {
      --angles;
    } else if (angles == 0 && rest[0] == ' ') {
      begin = i + 1;
    } else if (angles == 0 && rest[0] == '(' && i > begin) {
      return function.substr(begin, i - begin);
    }
  }
  // A lambda's "{lambda(int)#1}" or a template that was cut.
  return angles == 0 ? function.substr(begin) : function;
}

Owner OwnerOf(const Frame& frame, bool has_interpreter) {
  if (frame.function.empty()) return Owner::kNobody;
  if (IsPythonFile(frame.file)) return OwnerOfPython(frame);
  const string_view name = NameOf(frame.function);
  // glibc's own sources and GCC's, as distributions build them.
  if (IsSystemFrame(name) || StartsWithWordOf(kWaitingPrefixes, name) ||
      StartsWithWordOf("../sysdeps/ ./nptl/ ./libio/ ./stdio-common/ ../csu/", frame.file) ||
      absl::StrContains(frame.file, "/libsanitizer/")) {
    return Owner::kNobody;
  }
  if (IsInterpreterFrame(name)) return Owner::kInterpreter;
  // Where an interpreter runs, the user's code is Python; "main" is the interpreter's then.
  if (has_interpreter) return name == "main" ? Owner::kNobody : Owner::kLibrary;
  return StartsWithWordOf(kLibraryPrefixes, name) ? Owner::kLibrary : Owner::kUser;
}

string_view ShortFile(string_view file) {
  if (const string_view package = BehindPackages(file); !package.empty()) return package;
  if (const string_view standard = BehindStandardLibrary(file); !standard.empty()) return standard;
  size_t slash = file.rfind('/');
  if (slash == string_view::npos) return file;
  // Every package has such a file: the folder tells which.
  if (absl::StartsWith(file.substr(slash + 1), "__") && slash > 0) {
    const size_t folder = file.rfind('/', slash - 1);
    if (folder != string_view::npos) slash = folder;
  }
  return file.substr(slash + 1);
}

bool HasInterpreter(const ThreadStack& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [](const Frame& frame) {
    return !IsPythonFile(frame.file) && IsInterpreterFrame(frame.function);
  });
}

}  // namespace

std::string FrameText(const Frame& frame) {
  std::string text(NameOf(frame.function));
  if (text.size() > kMaxShownFunction) {
    text = absl::StrCat(text.substr(0, CharacterStart(text, kMaxShownFunction)), "...");
  }
  if (text.empty()) text = "?";
  if (frame.file.empty()) return text;
  absl::StrAppend(&text, " (", ShortFile(frame.file));
  if (frame.line != 0) absl::StrAppend(&text, ":", frame.line);
  return text + ")";
}

std::string WhereText(const Stack& stack) {
  if (stack.threads.empty() || stack.threads.front().frames.empty()) return "";
  const std::vector<Frame>& frames = stack.threads.front().frames;
  const bool has_interpreter = HasInterpreter(stack.threads.front());
  const Frame* library = nullptr;
  const Frame* user = nullptr;
  for (const Frame& frame : frames) {
    const Owner owner = OwnerOf(frame, has_interpreter);
    // What called the interpreter is no place in the user's program.
    if (owner == Owner::kInterpreter) break;
    if (owner == Owner::kLibrary && library == nullptr) library = &frame;
    if (owner != Owner::kUser) continue;
    user = &frame;
    break;
  }
  const std::string caller = user != nullptr   ? FrameText(*user)
                             : has_interpreter ? "Python code (py-spy would name its line)"
                                               : "";
  if (library != nullptr) {
    return absl::StrCat("in ", FrameText(*library), caller.empty() ? "" : ", called from ", caller);
  }
  if (!caller.empty()) return absl::StrCat("in ", caller);
  // Nothing but waiting: better a name of the C library's than none.
  const auto named = std::find_if(frames.begin(), frames.end(),
                                  [](const Frame& frame) { return !frame.function.empty(); });
  return named == frames.end() ? "" : absl::StrCat("in ", FrameText(*named));
}

bool IsWaiting(const Stack& stack) {
  if (stack.threads.empty()) return false;
  const ThreadStack& main = stack.threads.front();
  if (!main.state.empty()) return absl::StartsWith(main.state, "idle");
  if (main.frames.empty()) return false;
  const Frame& top = main.frames.front();
  return !IsPythonFile(top.file) && IsSystemFrame(NameOf(top.function));
}

}  // namespace ddprun::launcher
