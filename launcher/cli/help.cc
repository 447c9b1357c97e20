// The shape of what `ddprun --help` and `ddprun COMMAND --help` print.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/release.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kTextColumn = 30;
constexpr size_t kCommandColumn = 22;

constexpr const char* kCommonOptions[] = {
    "nproc_per_node", "nnodes", "rdzv_endpoint", "rdzv_id", "max_restarts",
    "log_dir",        "tee",    "hang_timeout",  "help_all"};

constexpr char kHead[] =
    "Examples:\n"
    "  ddprun --nproc-per-node=4 ./train --epochs 3\n"
    "  ddprun --nnodes=2 --rdzv-endpoint=HOST:29400 ./train   (the same on each node)\n"
    "\n"
    "Usage: ddprun [options] PROGRAM [ARGS...]\n"
    "\n"
    "Starts --nproc-per-node processes (gpu: one for each GPU), gives each its rank,\n"
    "watches them, restarts the job when something dies and says what died first.\n"
    "PROGRAM is any executable; a name ending in .py runs with -u under $PYTHON_EXEC,\n"
    "else the python3 of the environment that ddprun is installed in, else of PATH.\n";

constexpr char kTail[] =
    "Options may be written with dashes or underscores, and cut short as long as only\n"
    "one begins so; the last of several wins. Everything after PROGRAM is the\n"
    "program's (a -- right behind it is dropped); ${local_rank} in it is replaced, $$\n"
    "becomes $. PET_<NAME> in the environment stands in for an option, DDPRUN_<NAME>\n"
    "for one that torchrun lacks. /etc/ddprun.env has lines of these variables for\n"
    "all jobs of a machine; DDPRUN_SITE_FILE names another file, or none.\n"
    "DDPRUN_LOG_LEVEL=info or =debug tells on stderr what ddprun does.\n"
    "\n"
    "Exit codes: that of the first worker that failed (128+n: killed by signal n), or\n";

constexpr char kShortTail[] =
    "\n"
    "Underscores are taken, too: --nproc_per_node. What follows PROGRAM is the\n"
    "program's. The exit code is that of the first worker that failed; ddprun's own\n"
    "codes are in ddprun --help-all.\n";

// `text` from `column` on; the first line begins behind `line`.
std::string Wrapped(std::string line, const std::string& text, size_t column = kTextColumn) {
  std::string out;
  if (line.size() + 1 >= column && column > 0) {
    out = line + "\n";
    line.clear();
  }
  line.resize(column, ' ');
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (line.size() > column && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&out, line, "\n");
      line.assign(column, ' ');
    }
    absl::StrAppend(&line, line.size() > column ? " " : "", word);
  }
  return absl::StrCat(out, line, "\n");
}

std::string OptionText(const std::string& letter, const std::string& name, const std::string& value,
                       const std::string& help) {
  const bool has_sign = value.empty() || value.starts_with("[=");
  return Wrapped(absl::StrCat("  ", letter.empty() ? "" : absl::StrCat("-", letter, ", "), "--",
                              name, has_sign ? "" : "=", value),
                 help);
}

class HelpFormat final : public CLI::Formatter {
 public:
  // `subject`: the word behind the name of the command that is asked about.
  explicit HelpFormat(std::string subject) : subject_(std::move(subject)) {}

  std::string make_description(const CLI::App* app) const override {
    return app->get_parent() == nullptr ? kHead : Wrapped("", app->get_description(), 0);
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    if (app->get_parent() == nullptr) return "\n";  // the head has it
    return absl::StrCat("\nUsage: ", name, subject_, " [options]\n\n");
  }

  std::string make_footer(const CLI::App* app) const override {
    if (app->get_parent() != nullptr) return "";
    std::string text = kTail;
    for (const ExitCodeMeaning& row : kExitCodes) {
      const std::string code =
          row.code == kExitSignalBase ? "" : absl::StrFormat("%-3d  ", row.code);
      absl::StrAppend(&text, "  ", code, std::string(row.meaning), "\n");
    }
    return text;
  }

  std::string make_group(std::string group, bool /*is_positional*/,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = absl::StrCat(group, ":\n");
    for (const CLI::Option* option : options) text += make_option(option, false);
    return text;
  }

  std::string make_option(const CLI::Option* option, bool /*is_positional*/) const override {
    const std::vector<std::string>& letters = option->get_snames();
    return OptionText(letters.empty() ? "" : letters[0], option->get_lnames()[0],
                      option->get_option_text(), option->get_description());
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return Wrapped("  ddprun " + command->get_name(), command->get_description());
  }

 private:
  const std::string subject_;
};

void AddOptions(std::span<const OptionRow> rows, CLI::App& app) {
  app.set_help_flag();  // the table has one
  for (const OptionRow& row : rows) {
    if (row.old != nullptr) continue;
    std::string names = Dashed(row.name);
    if (row.letter != 0) absl::StrAppend(&names, ",-", std::string(1, row.letter));
    CLI::Option* option = app.add_option(names, CLI::callback_t(), row.help)->group(row.group);
    if (row.is_flag()) continue;
    option->option_text(row.may_stand_alone ? absl::StrCat("[=", row.value, "]") : row.value);
  }
}

// All of a command, or of ddprun itself.
std::string TextOf(const CommandRow* command) {
  CLI::App app;
  std::string subject;
  if (command != nullptr && command->subject != nullptr) {
    const bool may_lack = ChoicesIn(command->subject).size() == 1;
    subject =
        may_lack ? absl::StrCat(" [", command->subject, "]") : absl::StrCat(" ", command->subject);
  } else if (command != nullptr && command->argument != nullptr) {
    subject = absl::StrCat(" [", command->argument, "]");
  }
  app.formatter(std::make_shared<HelpFormat>(subject));
  AddOptions(OptionTable(), app);
  const CLI::App* asked = &app;
  for (const CommandRow& row : CommandTable()) {
    CLI::App* sub = app.add_subcommand(row.name, row.help)->group("Commands");
    AddOptions(row.options, *sub);
    if (command == &row) asked = sub;
  }
  std::string text = asked->help("ddprun");
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

// Without its full stop.
std::string FirstSentence(const std::string& text) {
  const size_t end = text.find(". ");
  return text.substr(0, end == std::string::npos ? text.size() - 1 : end);
}

// What somebody who has ten minutes needs; it fits a terminal or two.
std::string ShortHelpText() {
  std::string text = absl::StrCat(kHead, "\nCommands (ddprun help COMMAND has all of one):\n");
  for (const CommandRow& row : CommandTable()) {
    absl::StrAppend(&text, Wrapped(absl::StrCat("  ddprun ", row.name), FirstSentence(row.help),
                                   kCommandColumn));
  }
  absl::StrAppend(&text, "\nCommon options:\n");
  for (const char* name : kCommonOptions) {
    const OptionRow& row = *FindOption(name);
    absl::StrAppend(
        &text, OptionText(row.letter == 0 ? "" : std::string(1, row.letter),
                          Dashed(row.name).substr(2), row.is_flag() ? "" : row.value, row.help));
  }
  return absl::StrCat(text, kShortTail);
}

}  // namespace

std::string HelpText(const CommandRow* command) {
  return command == nullptr ? ShortHelpText() : TextOf(command);
}

std::string FullHelpText() { return TextOf(nullptr); }

std::string VersionText() { return absl::StrCat(ReleaseText(ThisRelease()), "\n"); }

}  // namespace ddprun::launcher
