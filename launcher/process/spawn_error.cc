// Words and exit code for a program that did not start.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/process/exit_status.h"
#include "launcher/process/spawn.h"
#include "process/failure_text.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// The program named by a script's first line; empty for anything else.
std::string InterpreterOf(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char head[256];  // the kernel reads as many
  const ssize_t size = file.is_open() ? read(file.get(), head, sizeof(head)) : -1;
  if (size < 2 || head[0] != '#' || head[1] != '!') return {};
  std::string line(head + 2, static_cast<size_t>(size) - 2);
  line = line.substr(0, line.find('\n'));
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

// Why the kernel refused, where its errno says too little; empty when there is nothing to add.
std::string Hint(const std::string& path, int error) {
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (error == ENOENT && exists) {
    const std::string interpreter = InterpreterOf(path);
    if (interpreter.empty()) return "the file exists, but the loader it names does not";
    const bool has_return = interpreter.back() == '\r';
    return "the file exists, but its interpreter \"" +
           (has_return ? interpreter.substr(0, interpreter.size() - 1) + "\\r" : interpreter) +
           "\" does not" + (has_return ? " (the file has DOS line ends)" : "");
  }
  if (error == EACCES && exists && S_ISDIR(status.st_mode)) return "it is a directory";
  if (error == EACCES && exists && (status.st_mode & 0111) == 0) {
    return "it has no execute bit";
  }
  if (error == ENOEXEC) return "neither a program for this machine nor a script beginning with #!";
  return {};
}

int ExitCodeForExec(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
      // Found, but its interpreter is missing: the program is there and cannot be executed.
      return access(path.c_str(), F_OK) == 0 ? kExitNotExecutable : kExitNotFound;
    case ENOTDIR:
      return kExitNotFound;
    case E2BIG:
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case EIO:
      return kExitMachine;
    default:
      return kExitNotExecutable;
  }
}

}  // namespace

SpawnFailure DescribeSpawnFailure(const std::string& executable, const ChildFailure& failure) {
  const int error = failure.error;
  if (failure.step != nullptr) return DescribeMachineFailure(failure.step, error);
  SpawnFailure why{.exit_code = ExitCodeForExec(executable, error),
                   .text = "exec \"" + executable + "\": " + ErrorText(error)};
  if (const std::string hint = Hint(executable, error); !hint.empty()) why.text += "; " + hint;
  return why;
}

SpawnFailure DescribeMachineFailure(const std::string& operation, int error) {
  return {.exit_code = kExitMachine, .text = FailureText(operation, error)};
}

}  // namespace ddprun::launcher
