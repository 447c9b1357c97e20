// Every option of ddprun and of its commands, as data. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_OPTION_TABLE_H_
#define DDPRUN_LAUNCHER_CLI_OPTION_TABLE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

// A name that is still accepted for an option with a better one. docs/reference/versions.md lists
// these.
struct Deprecation {
  const char* name;       // as users write it: "--ranks"
  const char* successor;  // the row of the better name
  const char* old_use;    // "bench --ranks=N,..."
  const char* new_use;
  const char* since;  // the version
  const char* meaning;
};

struct OptionRow {
  const char* name;  // in its underscore spelling; the dash spelling is accepted as well
  char letter;       // 0: none
  // What stands for the value in the help; nullptr: a flag. Of its parts between bars the
  // completion offers those in lower case; FILE and PATH are completed as files, DIR as folders.
  const char* value;
  const char* group;  // heading in the help
  const char* help;
  bool has_variable = true;      // VariablesOf stand in for it
  bool is_ours = false;          // torchrun has none such
  bool may_stand_alone = false;  // --name means --name= (a value only behind the sign)
  // An old name: help and completion leave it out, and a use causes a warning.
  const Deprecation* old = nullptr;

  bool is_flag() const { return value == nullptr; }
};

// `ddprun NAME [options]`, or `ddprun NAME SUBJECT [options]`
struct CommandRow {
  const char* name;
  const char* help;  // its first sentence fits a line
  std::span<const OptionRow> options;
  // The word that follows the name, or several to choose from: a|b; nullptr: none. A single one may
  // be left out.
  const char* subject = nullptr;
  // What may stand among the options, JOB or COMMAND: it becomes the subject.
  const char* argument = nullptr;
};

// A first word or an option of a program that users come from, which ddprun does not have.
struct ForeignWord {
  const char* word;
  const char* instead;
};

// Of ddprun itself.
std::span<const OptionRow> OptionTable();
std::span<const CommandRow> CommandTable();
std::span<const ForeignWord> ForeignWords();
std::span<const ForeignWord> ForeignOptions();
std::span<const Deprecation> Deprecations();
// nullptr when `name` is no command.
const CommandRow* FindCommand(std::string_view name);
// What `bench --json FILE` is read as: an option of that name that takes a file.
inline constexpr char kOldJson[] = "old_json";
// In OptionTable; nullptr when `name` (without dashes in front, either spelling) is no option.
const OptionRow* FindOption(std::string_view name);
// What stands in for the option, the first wins: DDPRUN_METRICS and PET_METRICS; PET_NNODES
// alone for an option of torchrun's. None for a row without a variable.
std::vector<std::string> VariablesOf(const OptionRow& row);
// In OptionTable; nullptr if the variable stands in for no option.
const OptionRow* FindOptionOfVariable(std::string_view variable);

// "a", "b" for "a|b".
std::vector<std::string> ChoicesIn(std::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_OPTION_TABLE_H_
