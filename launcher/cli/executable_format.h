// What kind of file an executable is, as far as execve() will care.
#ifndef DDPRUN_LAUNCHER_CLI_EXECUTABLE_FORMAT_H_
#define DDPRUN_LAUNCHER_CLI_EXECUTABLE_FORMAT_H_

#include <string>

namespace ddprun::launcher {

struct ExecutableFormat {
  // A text without "#!": execve refuses it (ENOEXEC) and execvp then runs the shell.
  bool needs_shell = false;
  // The first line is "#!.../env COMMAND": what env will look for in PATH.
  std::string env_command;
  // Why execve would refuse the file; empty: no reason is known.
  std::string problem;
};

// Reads the beginning of a regular file. What cannot be read or is not understood has no problem:
// the kernel has the last word.
ExecutableFormat InspectExecutable(const std::string& path);

// Whether the kernel knows more formats than its own (binfmt_misc: qemu, wine). Then no format is
// foreign.
bool HasFurtherFormats();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_EXECUTABLE_FORMAT_H_
