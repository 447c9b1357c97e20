// What `ddprun --help` prints. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_HELP_H_
#define DDPRUN_LAUNCHER_CLI_HELP_H_

#include <string>

namespace ddprun::launcher {

// Examples first, then the options of the table by group, then the exit codes; no line is wider
// than 80 columns.
std::string HelpText();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_HELP_H_
