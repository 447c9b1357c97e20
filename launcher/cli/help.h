// The shape of what `ddprun --help` and `ddprun COMMAND --help` print.
#ifndef DDPRUN_LAUNCHER_CLI_HELP_H_
#define DDPRUN_LAUNCHER_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <memory>

namespace ddprun::launcher {

// Of ddprun itself: examples and usage, its options by group, its commands, what holds for all
// options, the exit codes. Of a command: its description and its options. No line is wider than 80
// columns.
std::shared_ptr<CLI::FormatterBase> MakeHelpFormat();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_HELP_H_
