#include "launcher/dump/stack_reader.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/dump/proc_facts.h"
#include "launcher/dump/tool_run.h"
#include "launcher/dump/worker_server.h"
#include "launcher/process/worker_env.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;
using std::chrono::milliseconds;

constexpr size_t kMaxEnvironment = 1 << 20;
// Of a process's map: enough for thousands of libraries.
constexpr size_t kMaxMaps = 4 << 20;
constexpr milliseconds kPatienceForStop{500};
constexpr milliseconds kStopLook{5};

std::string Executable(const std::string& folder, const char* name) {
  if (!absl::StartsWith(folder, "/")) return "";
  const std::string path = absl::StrCat(folder, "/", name);
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0
             ? path
             : "";
}

std::string FindTool(const std::vector<std::string>& folders, const char* name) {
  for (const std::string& folder : folders) {
    if (std::string path = Executable(folder, name); !path.empty()) return path;
  }
  return "";
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool IsOwn(pid_t pid) {
  struct stat info {};
  return stat(absl::StrCat("/proc/", pid).c_str(), &info) == 0 && info.st_uid == geteuid();
}

bool IsPython(pid_t pid) {
  const std::string exe = ReadProcLink(pid, "exe");
  if (absl::StartsWith(exe.substr(exe.rfind('/') + 1), "python")) return true;
  const auto maps = ReadProcFile(pid, "maps", kMaxMaps);
  return maps.ok() && absl::StrContains(*maps, "/libpython");
}

// One reading of one process.
class Reader {
 public:
  Reader(pid_t pid, TimePoint deadline, const StackTools& tools)
      : pid_(pid),
        deadline_(deadline),
        tools_(tools),
        pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))),
        before_(ReadProcessStat(pid)),
        was_stopped_(IsStoppedOrAboutTo(pid)),
        folders_(absl::StrSplit(tools.path, ':', absl::SkipEmpty())) {}

  StackResult Read();

 private:
  void TryAll();
  bool TryPySpy(const std::string& py_spy, bool is_pausing);
  bool TryWorkerServer();
  bool TryTool(const char* name, std::vector<std::string> arguments, const std::string& path,
               bool is_stopping);
  bool Accept(const char* name, const std::string& text);
  std::vector<std::string> WorkerFolders();
  const std::string& environment();
  void LetRun();
  void Note(const std::string& what) { notes_.push_back(what); }
  std::string Problem() const;
  // Two thirds of what is left: a tool that hangs leaves time for the next.
  TimePoint Slice() const {
    const TimePoint now = SteadyNow();
    return now + (deadline_ > now ? (deadline_ - now) * 2 / 3 : Duration(0));
  }
  bool has_time() const { return SteadyNow() + milliseconds(10) < deadline_; }

  const pid_t pid_;
  const TimePoint deadline_;
  const StackTools& tools_;
  const UniqueFd pidfd_;
  const std::optional<ProcessStat> before_;
  const bool was_stopped_;
  const std::vector<std::string> folders_;
  std::optional<std::string> environment_;
  StackResult result_;
  std::vector<std::string> notes_;
  bool has_tool_ = false;
  bool is_denied_ = false;
};

// Read once, and only where it is needed (proc_facts.h).
const std::string& Reader::environment() {
  if (!environment_) environment_ = ReadProcFile(pid_, "environ", kMaxEnvironment).value_or("");
  return *environment_;
}

std::vector<std::string> Reader::WorkerFolders() {
  std::vector<std::string> folders;
  if (!tools_.looks_beside_worker || !IsOwn(pid_)) return folders;
  folders.push_back(FolderOf(ReadProcLink(pid_, "exe")));
  // A virtual environment's python is a link: its own name is what the program was called by.
  const std::string words = ReadProcFile(pid_, "cmdline", 4096).value_or("");
  folders.push_back(FolderOf(words.substr(0, words.find('\0'))));
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string root = VariableIn(environment(), name);
    if (!root.empty()) folders.push_back(absl::StrCat(root, "/bin"));
  }
  return folders;
}

// A stop that a killed tool left behind is undone.
void Reader::LetRun() {
  if (was_stopped_) return;
  const TimePoint end = SteadyNow() + kPatienceForStop;
  while (IsStoppedOrAboutTo(pid_) && SteadyNow() < end) {
    // By descriptor: the number may be somebody else's by now.
    if (pidfd_.is_open()) {
      syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGCONT, nullptr, 0);
    } else {
      kill(pid_, SIGCONT);
    }
    poll(nullptr, 0, static_cast<int>(kStopLook.count()));
  }
  if (IsStoppedOrAboutTo(pid_)) Note("the process stands still after a tool was killed");
}

bool Reader::Accept(const char* name, const std::string& text) {
  Stack stack = ParseStack(name, text, pid_);
  if (stack.threads.empty() || stack.threads.front().frames.empty()) return false;
  result_.stack = std::move(stack);
  return true;
}

// Why a tool gave no stack: its first complaint, on one line, or how it ended.
std::string Complaint(const ToolRun& run) {
  for (const string_view line : absl::StrSplit(run.err, '\n', absl::SkipWhitespace())) {
    if (absl::StrContains(line, "warning: ")) continue;
    std::string text = EscapeControl(std::string_view(line.data(), line.size()));
    return text.substr(0, CharacterStart(text, 200));
  }
  if (run.end.is_unknown || run.end.is_success()) return "no stack of the main thread";
  return run.end.exited ? absl::StrCat("exit code ", run.end.code)
                        : absl::StrCat("killed by ", SignalName(run.end.signal));
}

bool IsDenied(const ToolRun& run) {
  const std::string err = absl::AsciiStrToLower(run.err);
  return absl::StrContains(err, "operation not permitted") ||
         absl::StrContains(err, "permission denied");
}

bool Reader::TryTool(const char* name, std::vector<std::string> arguments, const std::string& path,
                     bool is_stopping) {
  if (path.empty()) return false;
  has_tool_ = true;
  if (is_denied_ || !has_time()) return false;
  arguments.insert(arguments.begin(), path);
  // Nothing that would make a tool ask the network (debuginfod) or colour its text.
  std::vector<std::string> variables = {"LC_ALL=C.UTF-8", absl::StrCat("PATH=", tools_.path),
                                        "TERM=dumb", "RUST_BACKTRACE=0"};
  const TimePoint began = SteadyNow();
  const ToolRun run = RunTool(arguments, variables, Slice(), SteadyClock());
  if (is_stopping && (run.is_late || run.is_cut || !run.end.is_success())) LetRun();
  if (!run.has_ended && run.start_error.empty()) Note(absl::StrCat(name, ": cannot be killed"));
  if (Accept(name, run.out)) return true;
  if (!run.start_error.empty()) {
    Note(absl::StrCat(name, ": ", run.start_error));
  } else if (run.is_late) {
    const auto spent = std::chrono::duration_cast<milliseconds>(SteadyNow() - began).count();
    Note(absl::StrCat(name, ": no answer in ", static_cast<double>(spent / 100) / 10.0, " s"));
  } else if (IsDenied(run)) {
    is_denied_ = true;
  } else {
    Note(absl::StrCat(name, ": ", Complaint(run)));
  }
  return false;
}

bool Reader::TryPySpy(const std::string& py_spy, bool is_pausing) {
  std::vector<std::string> arguments = {"dump", "--full-filenames", "--pid", absl::StrCat(pid_)};
  if (!is_pausing) arguments.push_back("--nonblocking");
  return TryTool(kPySpy, std::move(arguments), py_spy, is_pausing);
}

bool Reader::TryWorkerServer() {
  if (!has_time() || !IsOwn(pid_)) return false;
  const std::string path = VariableIn(environment(), kWorkerServerVar);
  if (path.empty()) return false;
  const auto text = AskStacks(path, {pid_}, Slice());
  if (text.ok() && Accept(kWorkerServer, *text)) return true;
  Note(absl::StrCat(kWorkerServer, ": ",
                    EscapeControl(text.ok() ? "no stack" : std::string(text.status().message()))));
  return false;
}

void Reader::TryAll() {
  if (IsPython(pid_)) {
    std::string py_spy = FindTool(folders_, kPySpy);
    if (py_spy.empty()) py_spy = FindTool(WorkerFolders(), kPySpy);
    // Without pausing first: a program that hangs stands still by itself.
    if (TryPySpy(py_spy, false) || TryWorkerServer()) return;
    if (TryPySpy(py_spy, true)) return;
  }
  const std::string pid = absl::StrCat(pid_);
  if (TryTool(kEuStack, {"-s", "-i", "-n", "100", "-p", pid}, FindTool(folders_, kEuStack), true)) {
    return;
  }
  // Arguments of functions are the user's data.
  TryTool(kGdb,
          {"-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex",
           "set print frame-arguments none", "-p", pid, "-ex", "thread apply all bt 100"},
          FindTool(folders_, kGdb), true);
}

// "stack: not permitted (ptrace: Operation not permitted); ...".
std::string Reader::Problem() const {
  std::vector<std::string> parts = notes_;
  if (result_.stack.threads.empty()) {
    if (is_denied_) {
      const pid_t tracer = TracerOf(pid_);
      std::string text = "not permitted (ptrace: Operation not permitted)";
      const auto scope = ReadSmallFile("/proc/sys/kernel/yama/ptrace_scope", 16);
      if (tracer != 0) {
        absl::StrAppend(&text, "; process ", tracer, " traces it already");
      } else if (scope.ok() && !absl::StartsWith(*scope, "0")) {
        absl::StrAppend(&text, "; kernel.yama.ptrace_scope is ", scope->substr(0, 1),
                        absl::StartsWith(*scope, "3") ? ", which nobody may pass until a reboot"
                                                      : ", 0 or root would permit it");
      } else {
        absl::StrAppend(&text, "; a container needs the right SYS_PTRACE, or the same user");
      }
      parts.insert(parts.begin(), std::move(text));
    } else if (!has_tool_) {
      parts.insert(parts.begin(),
                   "no tool to read it: install py-spy (pip install py-spy) for Python, elfutils "
                   "(eu-stack) or gdb for other programs");
    }
  }
  return parts.empty() ? "" : absl::StrCat("stack: ", absl::StrJoin(parts, "; "));
}

StackResult Reader::Read() {
  if (!IsAlive(before_)) {
    result_.is_alive = false;
    result_.problem = kHasEnded;
    return std::move(result_);
  }
  // Before any tool: one that stops it changes what the kernel says.
  result_.is_stopped = before_->state == 'T';
  result_.kernel_wait = KernelWait(pid_);
  result_.kernel_stack = ReadProcFile(pid_, "stack", 16 * 1024).value_or("");
  TryAll();
  const std::optional<ProcessStat> after = ReadProcessStat(pid_);
  if (!IsAlive(after) || after->start_ticks != before_->start_ticks) {
    result_ = {.problem = kHasEnded, .is_alive = false};
    return std::move(result_);
  }
  result_.problem = Problem();
  return std::move(result_);
}

}  // namespace

StackResult ReadStack(pid_t pid, TimePoint deadline, const StackTools& tools) {
  return Reader(pid, deadline, tools).Read();
}

RankStack ToRankStack(int rank, const StackResult& result) {
  RankStack made = MakeRankStack(rank, result.stack);
  if (made.where.empty()) made.where = result.kernel_wait;
  // Without the C library's symbols a tool has no name for the call that waits, and faulthandler
  // knows none; what py-spy says of the thread stands.
  const bool is_told = !result.stack.threads.empty() && !result.stack.threads.front().state.empty();
  if (!is_told && !result.kernel_wait.empty()) made.is_waiting = true;
  if (result.is_stopped) {
    made.where = absl::StrCat("stopped", made.where.empty() ? "" : " ", made.where);
    made.is_waiting = false;
  }
  if (made.where.empty()) made.unknown_why = result.problem;
  return made;
}

std::string ResultText(const StackResult& result) {
  std::string text;
  if (!result.problem.empty()) absl::StrAppend(&text, result.problem, "\n");
  if (!result.kernel_wait.empty()) absl::StrAppend(&text, "waits ", result.kernel_wait, "\n");
  if (!result.stack.threads.empty()) {
    const std::string where = WhereText(result.stack);
    absl::StrAppend(&text, "is ", where.empty() ? "at an unknown place" : where, "\n\nby ",
                    result.stack.tool, ":\n", StackText(result.stack));
  }
  if (!result.kernel_stack.empty()) {
    absl::StrAppend(&text, "\nin the kernel:\n");
    for (const string_view line : absl::StrSplit(result.kernel_stack, '\n', absl::SkipEmpty())) {
      absl::StrAppend(&text, "    ", EscapeControl(std::string_view(line.data(), line.size())),
                      "\n");
    }
  }
  return text;
}

}  // namespace ddprun::launcher
