// The words of a command line, read by CLI11, and the help, written by it. Nothing else calls it.
#ifndef DDPRUN_LAUNCHER_CLI_COMMAND_LINE_H_
#define DDPRUN_LAUNCHER_CLI_COMMAND_LINE_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cli/option_table.h"

namespace ddprun::launcher {

inline constexpr char kVersion[] = "0.1.0";

struct CommandLine {
  std::string print;                    // not empty: --help or --version, and nothing else is there
  const CommandRow* command = nullptr;  // nullptr: a program is launched
  GivenOptions given;                   // of several with one name the last
  std::vector<std::string> program;     // the program and its arguments
};

// Reads `args` (without argv[0]). A command is one as the first word only. Otherwise the program
// begins at the first word that is neither an option nor an option's value, or after `--`; what
// follows is never looked at. A long option may be cut short as long as only one begins so. An
// error is InvalidArgument and one line: an unknown option is told the nearest one.
absl::StatusOr<CommandLine> ReadCommandLine(std::span<const std::string> args);

// Of ddprun itself, or of a command. No line is wider than 80 columns.
std::string HelpText(const CommandRow* command);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_COMMAND_LINE_H_
