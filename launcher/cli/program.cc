#include "launcher/cli/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

constexpr char kShell[] = "/bin/sh";
constexpr char kDefaultPath[] = "/bin:/usr/bin";  // execvp's, where PATH is not set

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

enum class Need { kExecute, kRead };

// 0, or the errno that opening `path` for that purpose would meet.
int Problem(const std::string& path, Need need) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (need == Need::kExecute && !S_ISREG(status.st_mode)) return EACCES;
  const int mode = need == Need::kExecute ? X_OK : R_OK;
  // Effective ids, as execve has it.
  return faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 ? 0 : errno;
}

bool IsMissing(int error) { return error == ENOENT || error == ENOTDIR; }

absl::Status NotFound(const std::string& name, const std::string& why) {
  return absl::NotFoundError(absl::StrCat("program ", Quoted(name), ": ", why));
}

absl::Status NotExecutable(const std::string& name, const std::string& why) {
  return absl::PermissionDeniedError(absl::StrCat("program ", Quoted(name), ": ", why));
}

absl::Status ErrorOfPath(const std::string& name, int error, Need need) {
  if (IsMissing(error)) {
    return NotFound(name, "no such file; expected an executable file or a .py script");
  }
  if (error == EISDIR) {
    return NotExecutable(name, "is a directory; expected an executable file or a .py script");
  }
  if (error == EACCES && need == Need::kExecute) {
    return NotExecutable(name,
                         "is not executable; expected a file with an execute bit (chmod +x) "
                         "or a name ending in .py");
  }
  return NotExecutable(name, std::strerror(error));
}

// A script without "#!": execve refuses it (ENOEXEC) and execvp then runs the shell. Binary
// formats that the kernel may know by other means hold a NUL early, and are left to it.
bool NeedsShell(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char head[128];
  ssize_t length;
  do {
    length = read(fd, head, sizeof(head));
  } while (length < 0 && errno == EINTR);
  close(fd);
  if (length < 0 || (length >= 2 && head[0] == '#' && head[1] == '!')) return false;
  return std::memchr(head, '\0', static_cast<size_t>(length)) == nullptr;
}

// The file that execvp would take for a name without a slash. An unusable one is passed over, and
// is the error only when no usable one follows.
absl::StatusOr<std::string> SearchPath(const std::string& name, const Environment& environment) {
  const std::string path = environment.Get("PATH").value_or(kDefaultPath);
  std::optional<std::string> unusable;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    begin = end + 1;
    std::string candidate = folder.empty() ? name : folder + "/" + name;
    const int problem = Problem(candidate, Need::kExecute);
    if (problem == 0) return candidate;
    if (!IsMissing(problem) && problem != EISDIR && !unusable) unusable = candidate;
  }
  if (unusable) return NotExecutable(name, absl::StrCat(Quoted(*unusable), " is not executable"));
  const bool is_here = Problem(name, Need::kRead) == 0;
  return NotFound(name, is_here ? absl::StrCat("not found in PATH; the file in this directory is ",
                                               Quoted("./" + name))
                                : "not found in PATH; expected a command or the path of a file");
}

absl::StatusOr<std::string> FindExecutable(const std::string& name,
                                           const Environment& environment) {
  if (name.empty()) return ErrorOfPath(name, ENOENT, Need::kExecute);
  if (name.find('/') == std::string::npos) return SearchPath(name, environment);
  const int problem = Problem(name, Need::kExecute);
  if (problem != 0) return ErrorOfPath(name, problem, Need::kExecute);
  return name;
}

absl::StatusOr<Program> ResolvePython(const std::string& script, const Environment& environment) {
  const int problem = Problem(script, Need::kRead);
  if (problem != 0) return ErrorOfPath(script, problem, Need::kRead);
  const std::optional<std::string> given = environment.Get("PYTHON_EXEC");
  const std::string python = given && !given->empty() ? *given : "python3";
  absl::StatusOr<std::string> executable = FindExecutable(python, environment);
  if (!executable.ok()) {
    return absl::Status(executable.status().code(),
                        absl::StrCat(executable.status().message(), "; it is needed to run ",
                                     Quoted(script), " (PYTHON_EXEC names another)"));
  }
  return Program{.executable = *executable, .argv = {python, "-u", script}, .title = script};
}

}  // namespace

absl::StatusOr<Program> ResolveProgram(const std::string& name,
                                       const std::vector<std::string>& args, bool no_python,
                                       const Environment& environment) {
  Program program;
  if (EndsWith(name, ".py") && !no_python) {
    absl::StatusOr<Program> python = ResolvePython(name, environment);
    if (!python.ok()) return python.status();
    program = *std::move(python);
  } else {
    absl::StatusOr<std::string> executable = FindExecutable(name, environment);
    if (!executable.ok()) return executable.status();
    program = {.executable = *executable, .argv = {name}, .title = name};
    if (NeedsShell(*executable)) {
      program.argv = {kShell, *executable};
      program.executable = kShell;
    }
  }
  program.argv.insert(program.argv.end(), args.begin(), args.end());
  return program;
}

int ExitCodeOfStartError(const absl::Status& error) {
  if (absl::IsInvalidArgument(error)) return kExitUsage;
  if (absl::IsNotFound(error)) return kExitNotFound;
  if (absl::IsPermissionDenied(error)) return kExitNotExecutable;
  return kExitBug;
}

std::vector<std::string> ArgvOfWorker(const Program& program, int local_rank) {
  std::vector<std::string> argv;
  argv.reserve(program.argv.size());
  for (const std::string& word : program.argv) {
    argv.push_back(ReplaceMacro(word, "local_rank", std::to_string(local_rank)));
  }
  return argv;
}

}  // namespace ddprun::launcher
