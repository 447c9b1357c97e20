// Every option of ddprun, and where a command line's options end. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_OPTION_TABLE_H_
#define DDPRUN_LAUNCHER_CLI_OPTION_TABLE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

struct OptionRow {
  const char* name;   // in its underscore spelling; the dash spelling is accepted as well
  char letter;        // 0: none
  const char* value;  // what stands for the value in the help; nullptr: a flag
  const char* group;  // heading in the help
  const char* help;
  bool has_variable;  // PET_<NAME> stands in for it

  bool is_flag() const { return value == nullptr; }
};

std::span<const OptionRow> OptionTable();
// nullptr when `name` (without dashes in front, either spelling) is no option.
const OptionRow* FindOption(std::string_view name);
// "PET_NNODES" for nnodes.
std::string VariableOf(const OptionRow& row);

// One option as it stood on the command line. A flag has an empty value.
struct OptionUse {
  const OptionRow* row;
  std::string value;
};

struct SplitCommandLine {
  std::vector<OptionUse> options;    // in order
  std::vector<std::string> program;  // the program and its arguments, verbatim
};

// Splits `args` (without argv[0]) where the program begins: at the first word that is neither an
// option nor an option's value, or after `--`. What follows is never looked at. A long option may
// be cut short as long as only one begins so. An unknown option before the program is an error that
// names the nearest one. `--help` and `--version` end the
// reading: they are the last option of the result.
absl::StatusOr<SplitCommandLine> SplitAtProgram(std::span<const std::string> args);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_OPTION_TABLE_H_
