#include "launcher/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/help.h"
#include "launcher/cli/spelling.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;
using Words = std::span<const std::string>;

// --help and --version end the reading, whatever stands behind them.
CLI::callback_t WhenRead(std::string_view name) {
  const bool is_help = name == "help";
  if (!is_help && name != "version") return {};
  return [is_help](const CLI::results_t& texts) {
    if (IsMarked(texts.back())) return true;
    if (is_help) throw CLI::CallForHelp();
    throw CLI::CallForVersion("", 0);
  };
}

void AddOption(const OptionRow& row, const Spelling& spelling, CLI::App& app) {
  CLI::Option* option = app.add_option(spelling.NamesOf(row), WhenRead(row.name), row.help);
  option->group(row.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (row.is_flag()) {
    option->expected(0)->trigger_on_parse();
  } else {
    option->option_text(row.value);
  }
}

CLI::App* AddCommand(const CommandRow& row, CLI::App& app) {
  CLI::App* command = app.add_subcommand(row.name, row.help)->group("Commands");
  command->set_help_flag();  // the table has one
  return command;
}

void NameProgram(CLI::App& app) {
  app.name("ddprun")->set_help_flag();
  app.formatter(MakeHelpFormat());
}

std::string HelpOf(const CommandRow* command) {
  CLI::App app;
  NameProgram(app);
  const Spelling plain({}, {});
  for (const OptionRow& row : OptionTable()) AddOption(row, plain, app);
  for (const CommandRow& row : CommandTable()) {
    CLI::App* sub = AddCommand(row, app);
    for (const OptionRow& option : row.options) AddOption(option, plain, *sub);
  }
  std::string text =
      command == nullptr ? app.help() : app.get_subcommand(command->name)->help("ddprun");
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

absl::Status TakesNoValue(const OptionRow& row, const std::string& text) {
  return InvalidArgumentError(
      absl::StrCat("--", row.name, " ", Quoted(Unmarked(text)), ": it takes no value"));
}

absl::StatusOr<GivenOptions> GivenTo(const CLI::App& app, std::span<const OptionRow> rows) {
  GivenOptions given;
  for (const OptionRow& row : rows) {
    const CLI::Option* option = app.get_option_no_throw(absl::StrCat("--", row.name));
    if (option == nullptr || option->empty()) continue;
    const std::string& text = option->results().back();
    if (row.is_flag() && IsMarked(text)) return TakesNoValue(row, text);
    given[row.name] = {.text = row.is_flag() ? "1" : Unmarked(text),
                       .source = absl::StrCat("--", row.name)};
  }
  return given;
}

// Of a word that no option of the command takes.
absl::Status RefuseOf(const CommandRow& command, const std::string& word) {
  std::vector<std::string> known;
  for (const OptionRow& row : command.options) {
    known.push_back(
        absl::StrCat("--", row.name, row.is_flag() ? "" : " ", row.is_flag() ? "" : row.value));
  }
  return InvalidArgumentError(
      absl::StrCat(word.starts_with('-') ? "unknown option " : "unexpected argument ", Quoted(word),
                   "; expected ", absl::StrJoin(known, ", "), " (a program of the name ",
                   command.name, " is ./", command.name, ")"));
}

// What CLI11 is told and what it says, of one command line.
class Reading {
 public:
  Reading(const CommandRow* command, Words words)
      : command_(command),
        words_(command == nullptr ? words : words.subspan(1)),
        rows_(command == nullptr ? OptionTable() : command->options),
        spelling_(rows_, words_) {
    NameProgram(app_);
    app_.prefix_command()->require_subcommand(0, 1);
    reader_ = command == nullptr ? &app_ : AddCommand(*command, app_);
    // What nobody mentions costs no time.
    for (const OptionRow& row : rows_) {
      if (spelling_.Mentions(row)) AddOption(row, spelling_, *reader_);
    }
  }

  absl::StatusOr<CommandLine> Read() {
    try {
      Parse();
    } catch (const CLI::CallForHelp&) {
      return CommandLine{.print = HelpOf(command_)};
    } catch (const CLI::CallForVersion&) {
      return CommandLine{.print = absl::StrCat("ddprun ", kVersion, "\n")};
    } catch (const CLI::ArgumentMismatch&) {
      const OptionRow& row = spelling_.OptionOf(words_.back());
      return InvalidArgumentError(
          absl::StrCat(Quoted(words_.back()), " needs a value: --", row.name, "=", row.value));
    }
    return Answer();
  }

 private:
  void Parse() {
    std::vector<std::string> marked = spelling_.marked();
    if (command_ != nullptr) marked.insert(marked.begin(), command_->name);
    std::reverse(marked.begin(), marked.end());  // as CLI11 wants them
    app_.parse(std::move(marked));
  }

  absl::StatusOr<CommandLine> Answer() const {
    absl::StatusOr<GivenOptions> given = GivenTo(*reader_, rows_);
    if (!given.ok()) return given.status();
    const std::vector<std::string> left = app_.remaining(true);
    CommandLine line = {.command = command_, .given = *std::move(given)};
    if (left.empty()) return line;
    const std::string first = Unmarked(left.front());
    if (command_ != nullptr) return RefuseOf(*command_, first);
    const bool is_end_of_options = first == "--";
    if (first.size() > 1 && first[0] == '-' && !is_end_of_options) return spelling_.Refuse(first);
    // From there on CLI11 has left everything, one word for each of ours.
    const Words program = words_.last(left.size()).subspan(is_end_of_options ? 1 : 0);
    line.program.assign(program.begin(), program.end());
    // torchrun's argparse drops one "--" in front of the arguments, or else the one in front of the
    // program.
    const bool drops_next = !is_end_of_options && program.size() > 1 && program[1] == "--";
    if (drops_next) line.program.erase(line.program.begin() + 1);
    return line;
  }

  const CommandRow* const command_;
  const Words words_;  // without the command
  const std::span<const OptionRow> rows_;
  const Spelling spelling_;
  CLI::App app_;
  CLI::App* reader_;  // of the options: app_, or its subcommand
};

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(std::span<const std::string> args) {
  const CommandRow* command = nullptr;
  for (const CommandRow& row : CommandTable()) {
    if (!args.empty() && args[0] == row.name) command = &row;
  }
  try {
    absl::StatusOr<CommandLine> line = Reading(command, args).Read();
    if (line.ok() || command == nullptr) return line;
    return InvalidArgumentError(absl::StrCat(command->name, ": ", line.status().message()));
  } catch (const CLI::Error& error) {
    return absl::InternalError(absl::StrCat("cannot read the command line: ", error.what()));
  }
}

}  // namespace ddprun::launcher
