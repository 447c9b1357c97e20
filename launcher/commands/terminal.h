// How a command ends that has no log yet: what it says, and its exit code.
#ifndef DDPRUN_LAUNCHER_COMMANDS_TERMINAL_H_
#define DDPRUN_LAUNCHER_COMMANDS_TERMINAL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun::launcher {

// One line on stderr; none, where the error has no message and another task of the job says it.
// Returns `exit_code`.
int Complain(const absl::Status& error, int exit_code);
// A line on stderr for each.
void Warn(const std::vector<std::string>& warnings);
// `text` on stdout. Returns kExitSuccess, or kExitMachine when it could not be written.
int Print(const std::string& text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_TERMINAL_H_
