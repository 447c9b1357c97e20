// From the words of the user to what is executed, and what of it the kernel would refuse.
#ifndef DDPRUN_LAUNCHER_CLI_PROGRAM_H_
#define DDPRUN_LAUNCHER_CLI_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

struct Program {
  std::string executable;         // a path execve can take
  std::vector<std::string> argv;  // argv[0] included; "${local_rank}" not yet replaced
  std::string title;              // what the user called it, for reports
  // Of its name, without folders, and its arguments: tells programs apart, on whatever node.
  uint64_t digest = 0;
};

// Finds what to execute. By its name: one that ends in .py runs under $PYTHON_EXEC, else the Python
// of the environment where ddprun is installed, else the python3 of PATH, with -u; one with a slash
// is a path; any other is looked for in PATH as execvp does, and a text file without "#!" runs
// under /bin/sh, also as execvp does. Errors are one line: NotFound (exit code 127),
// PermissionDenied for what is there and cannot be executed (126), an interpreter that is missing
// or a format of another machine included; InvalidArgument for what is no module's name.
absl::StatusOr<Program> ResolveProgram(const std::string& name,
                                       const std::vector<std::string>& args, RunAs run_as,
                                       const Environment& environment);

// The path of this program; empty where /proc does not say.
std::string OwnProgram();

// The python3 of the virtual or conda environment in whose bin folder `program` is, as torchrun's
// first line names its own; empty if it is in none.
std::string PythonBeside(const std::string& program);

// What kind of file an executable is, as far as execve() will care.
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

// What ddprun exits with after an error of ResolveProgram or ParseCommandLine.
int ExitCodeOfStartError(const absl::Status& error);

// The argv of one worker: "${local_rank}" and "$local_rank" replaced in its arguments, "$$" made
// "$".
std::vector<std::string> ArgvOfWorker(const Program& program, int local_rank);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_PROGRAM_H_
