// How torchrun's users write options, told to a parser that knows names only.
//
// CLI11 finds where the program begins, which word is whose value, and which option is unknown. It
// knows no abbreviations and no dashes for underscores, takes the next word for the value of
// `--rdzv-id=`, and `=3` for that of `-r=3`. So each spelling on the command line becomes a name of
// its option, and a word that CLI11 would read otherwise gets a mark: a zero byte, which no
// argument can hold. It reads one word for each of ours, so what is the program's is found by
// counting from the end, and in a value the mark is taken away again.
#include "launcher/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;
using Words = std::span<const std::string>;

constexpr char kMark = '\0';

std::string MarkedAt(std::string word, size_t at) { return word.insert(at, 1, kMark); }

// Whether CLI11's text of a value is that of a flag that was given one: --standalone=yes.
bool IsMarked(std::string_view text) { return text.find(kMark) != std::string_view::npos; }

// The text as the user gave it.
std::string Unmarked(std::string text) {
  const size_t at = text.find(kMark);
  if (at == std::string::npos) return text;
  // In front stands the mark of a value: `=3` behind a letter, or one that is empty or a flag's.
  const bool has_equals = at == 0 && text.size() > 1 && text[1] == '=';
  return text.erase(at, has_equals ? 2 : 1);
}

// `word`, or the option that mpirun writes so: of several letters behind one dash.
std::string WithoutMpirun(const std::string& word) {
  if (word == "-np") return "--workers";
  return word == "-ppn" ? "--nproc-per-node" : word;
}

bool IsLong(std::string_view word) { return word.size() > 2 && word.starts_with("--"); }

// Without the dashes and the value.
std::string_view LongName(std::string_view word) { return word.substr(2, word.find('=') - 2); }

bool TakesJob(const CommandRow& command) {
  return command.argument != nullptr && command.argument == std::string_view("JOB");
}

const char* ArgumentText(const CommandRow& command) {
  return TakesJob(command) ? "the id of a job" : "the name of a command";
}

// Those to suggest.
std::vector<std::string> NamesOf(std::span<const OptionRow> rows) {
  std::vector<std::string> names;
  for (const OptionRow& row : rows) {
    if (row.old == nullptr) names.push_back(Dashed(row.name).substr(2));
  }
  return names;
}

absl::Status RefuseForeign(const ForeignWord& foreign) {
  return InvalidArgumentError(absl::StrCat("ddprun has no command '", foreign.word, "'; use ",
                                           foreign.instead, " (a program of that name is ./",
                                           foreign.word, ", or -- ", foreign.word, ")"));
}

// Of a word that no option of the command takes.
absl::Status RefuseOf(const CommandRow& command, const std::string& word) {
  std::vector<std::string> known;
  for (const OptionRow& row : command.options) {
    if (row.old != nullptr) continue;
    known.push_back(
        absl::StrCat(Dashed(row.name), row.is_flag() ? "" : " ", row.is_flag() ? "" : row.value));
  }
  // Of `ddprun status --job X`.
  if (TakesJob(command) && (word == "--job" || word.starts_with("--job="))) {
    return InvalidArgumentError(absl::StrCat("unknown option ", Quoted(word),
                                             "; the job is an argument: ddprun ", command.name,
                                             " JOB"));
  }
  if (IsLong(word)) {
    const std::string meant = DidYouMean(LongName(word), NamesOf(command.options), "--");
    if (!meant.empty()) {
      const std::string name = word.substr(0, word.find('='));
      return InvalidArgumentError(absl::StrCat("unknown option ", Quoted(name), meant));
    }
  }
  if (command.subject != nullptr && word != command.subject)
    known.insert(known.begin(), command.subject);
  return InvalidArgumentError(
      absl::StrCat(word.starts_with('-') ? "unknown option " : "unexpected argument ", Quoted(word),
                   "; expected ", absl::StrJoin(known, ", "), " (if you mean the program ",
                   command.name, ": ./", command.name, ")"));
}

// Those of `rows` that `name` is or, as argparse has it, begins. What is short enough for torchrun
// is for us: our own options are not among its.
std::vector<const OptionRow*> FindLongIn(std::span<const OptionRow> rows, std::string_view name) {
  const std::string wanted = Underscored(name);
  std::vector<const OptionRow*> found;
  for (const OptionRow& row : rows) {
    const std::string_view whole = row.name;
    if (whole == wanted) return {&row};
    if (whole == kOldJson) continue;  // nobody writes it
    if (!wanted.empty() && whole.starts_with(wanted)) found.push_back(&row);
  }
  const auto is_ours = [](const OptionRow* row) { return row->is_ours; };
  if (!std::all_of(found.begin(), found.end(), is_ours)) std::erase_if(found, is_ours);
  return found;
}

// The first word that is neither an option of the command nor an option's value; its size: none.
size_t FindArgument(const CommandRow& command, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) return i;
    if (!IsLong(word) || word.find('=') != std::string::npos) continue;  // no letter has a value
    const std::vector<const OptionRow*> rows = FindLongIn(command.options, LongName(word));
    if (rows.size() == 1 && !rows[0]->is_flag()) ++i;
  }
  return words.size();
}

// `--json FILE` and `--json=FILE` of `bench`, where --json was no flag, by the name of their own. A
// word that may be the file is neither an option nor what bench compares.
void RenameOldJson(const CommandRow& command, std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!IsLong(words[i])) continue;
    const std::vector<const OptionRow*> rows = FindLongIn(command.options, LongName(words[i]));
    if (rows.size() != 1 || rows[0]->name != std::string_view("json")) continue;
    const size_t equals = words[i].find('=');
    const bool has_next =
        i + 1 < words.size() && !words[i + 1].starts_with('-') && words[i + 1] != command.subject;
    if (equals == std::string::npos && !has_next) continue;
    const std::string file =
        equals == std::string::npos ? words[i + 1] : words[i].substr(equals + 1);
    words[i] = absl::StrCat("--", kOldJson, "=", file);
    if (equals == std::string::npos) words.erase(words.begin() + static_cast<ptrdiff_t>(i) + 1);
  }
}

// What CLI11 is told and what it says, of one command line.
class Reading {
 public:
  // `words`: those behind the command's name and subject.
  Reading(const CommandRow* command, Words words)
      : command_(command),
        words_(words),
        rows_(command == nullptr ? OptionTable() : command->options) {
    app_.prefix_command()->require_subcommand(0, 1)->set_help_flag();
    for (const std::string& word : words_) {
      marked_.push_back(Marked(command == nullptr ? WithoutMpirun(word) : word));
    }
    CLI::App* reader = &app_;
    if (command != nullptr) {
      marked_.insert(marked_.begin(), command->name);
      reader = app_.add_subcommand(command->name);
      reader->set_help_flag();  // the table has one
    }
    // What nobody mentions costs no time.
    for (const auto& [row, names] : names_) options_[row] = AddOption(*row, names, *reader);
  }

  absl::StatusOr<CommandLine> Read() {
    try {
      std::reverse(marked_.begin(), marked_.end());  // as CLI11 wants them
      app_.parse(std::move(marked_));
    } catch (const CLI::Success&) {
      return CommandLine{.print = print_};
    } catch (const CLI::ArgumentMismatch&) {
      const std::string last = WithoutMpirun(words_.back());
      const OptionRow* row =
          IsLong(last) ? FindLong(LongName(last)).at(0) : FindLetter(last.back());
      DDP_CHECK(row != nullptr);
      return InvalidArgumentError(
          absl::StrCat(Quoted(last), " needs a value: ", Dashed(row->name), "=", row->value));
    }
    return Answer();
  }

 private:
  // `word` as CLI11 reads it; notes the name in it, if it might be an option.
  std::string Marked(const std::string& word) {
    if (IsLong(word)) {
      const std::string_view name = LongName(word);
      const std::vector<const OptionRow*> found = FindLong(name);
      if (found.size() != 1) return word;
      names_[found[0]].insert("--" + std::string(name));
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        return found[0]->may_stand_alone ? MarkedAt(word + "=", word.size() + 1) : word;
      }
      const bool has_value = equals + 1 < word.size();
      return has_value && !found[0]->is_flag() ? word : MarkedAt(word, equals + 1);
    }
    if (word.size() < 2 || word[0] != '-' || word == "--") return word;
    // Letters of flags, then perhaps one whose value follows: -mr3.
    for (size_t at = 1; at < word.size(); ++at) {
      const OptionRow* row = FindLetter(word[at]);
      if (row == nullptr) break;
      names_[row].insert({'-', row->letter});
      if (row->is_flag()) {
        if (at + 1 == word.size()) return word;
        continue;
      }
      return at + 1 < word.size() && word[at + 1] == '=' ? MarkedAt(word, at + 1) : word;
    }
    return MarkedAt(word, 1);  // CLI11 would take the letters that it knows
  }

  std::vector<const OptionRow*> FindLong(std::string_view name) const {
    return FindLongIn(rows_, name);
  }

  const OptionRow* FindLetter(char letter) const {
    for (const OptionRow& row : rows_) {
      if (row.letter != 0 && row.letter == letter) return &row;
    }
    return nullptr;
  }

  CLI::Option* AddOption(const OptionRow& row, const std::set<std::string>& names, CLI::App& app) {
    CLI::Option* option = app.add_option(absl::StrJoin(names, ","), WhenRead(row.name));
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (row.is_flag()) option->expected(0)->trigger_on_parse();
    return option;
  }

  // --help, --help-all, --version and --print-completion end the reading, whatever stands behind
  // them.
  CLI::callback_t WhenRead(std::string_view name) {
    if (name == "print_completion") {
      return [this](const CLI::results_t& texts) {
        print_ = CompletionText(Unmarked(texts.back()));
        if (!print_.empty()) throw CLI::Success();
        return true;
      };
    }
    if (name != "help" && name != "help_all" && name != "version") return {};
    return [this, name](const CLI::results_t& texts) {
      if (IsMarked(texts.back())) return true;
      print_ = name == "version" ? VersionText()
               : name == "help"  ? HelpText(command_)
                                 : FullHelpText();
      throw CLI::Success();
    };
  }

  absl::StatusOr<CommandLine> Answer() const {
    CommandLine line = {.command = command_};
    for (const auto& [row, option] : options_) {
      if (option->empty()) continue;
      const std::string source = row->old != nullptr ? row->old->name : Dashed(row->name);
      const std::string& text = option->results().back();
      if (row->is_flag() && IsMarked(text)) {
        return InvalidArgumentError(
            absl::StrCat(source, " ", Quoted(Unmarked(text)), ": it takes no value"));
      }
      const GivenValue value = {
          .text = row->is_flag() ? "1" : Unmarked(text), .source = source, .old_name = row->old};
      const char* const name = row->old != nullptr ? row->old->successor : row->name;
      if (!line.given.emplace(name, value).second) {
        return InvalidArgumentError(
            absl::StrCat(Dashed(name), " is given by its old name, too: expected one of them"));
      }
    }
    const std::vector<std::string> left = app_.remaining(true);
    if (left.empty()) return line;
    const std::string first = Unmarked(left.front());
    if (command_ != nullptr) return RefuseOf(*command_, first);
    const bool is_end_of_options = first == "--";
    if (first.size() > 1 && first[0] == '-' && !is_end_of_options) return Refuse(first);
    // From there on CLI11 has left everything, one word for each of ours.
    const size_t begin = words_.size() - left.size();
    if (const OptionRow* option = begin == 0 ? nullptr : PortOption(words_[begin - 1], first)) {
      return InvalidArgumentError(absl::StrCat(
          Dashed(option->name), " takes its port after '=': ", Dashed(option->name), "=", first));
    }
    const Words program = words_.last(left.size()).subspan(is_end_of_options ? 1 : 0);
    line.program.assign(program.begin(), program.end());
    // torchrun's argparse drops one "--" in front of the arguments, or else the one in front of the
    // program.
    const bool drops_next = !is_end_of_options && program.size() > 1 && program[1] == "--";
    if (drops_next) line.program.erase(line.program.begin() + 1);
    return line;
  }

  // The option whose value `word` was meant to be, in `--metrics 9400`: it takes one after its sign
  // alone.
  const OptionRow* PortOption(std::string_view before, std::string_view word) const {
    const size_t port = word.rfind(':') == std::string_view::npos ? 0 : word.rfind(':') + 1;
    const bool is_port = port < word.size() &&
                         word.find_first_not_of("0123456789", port) == std::string_view::npos &&
                         word.find('/') == std::string_view::npos;
    if (!is_port || !IsLong(before)) return nullptr;
    const std::vector<const OptionRow*> found = FindLong(LongName(before));
    const bool stands_alone = found.size() == 1 && found[0]->may_stand_alone &&
                              before.find('=') == std::string_view::npos;
    return stands_alone ? found[0] : nullptr;
  }

  // What is wrong with an option that CLI11 did not know.
  absl::Status Refuse(const std::string& word) const {
    const std::string quoted = Quoted(IsLong(word) ? word.substr(0, word.find('=')) : word);
    const std::string_view name = IsLong(word) ? LongName(word) : std::string_view(word).substr(1);
    if (const auto found = FindLong(name); IsLong(word) && found.size() > 1) {
      const auto write = [](std::string* out, const OptionRow* row) {
        out->append(Dashed(row->name));
      };
      return InvalidArgumentError(
          absl::StrCat("option ", quoted, " could be ", absl::StrJoin(found, ", ", write)));
    }
    const std::string wanted = Underscored(name);
    if (wanted == "use_env" || wanted == "no_use_env") {
      return InvalidArgumentError(absl::StrCat(
          "option ", quoted,
          " is torch.distributed.launch's; leave it out: workers always find LOCAL_RANK in the "
          "environment (a script that wants an argument takes '--local-rank=${local_rank}')"));
    }
    std::string meant = DidYouMean(name, NamesOf(rows_), "--");
    for (const ForeignWord& foreign : ForeignOptions()) {
      if (wanted == foreign.word) meant = absl::StrCat("; use ", foreign.instead);
    }
    return InvalidArgumentError(absl::StrCat(
        "unknown option ", quoted, meant.empty() ? "; ddprun --help lists the options" : meant,
        " (an option of the program goes after the program)"));
  }

  const CommandRow* const command_;
  const Words words_;  // without the command
  const std::span<const OptionRow> rows_;
  std::map<const OptionRow*, std::set<std::string>> names_;  // that options have in the words
  std::map<const OptionRow*, CLI::Option*> options_;
  std::vector<std::string> marked_;  // the words, as CLI11 reads them
  CLI::App app_;
  std::string print_;
};

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(std::span<const std::string> args) {
  const CommandRow* command = args.empty() ? nullptr : FindCommand(args[0]);
  for (const ForeignWord& foreign : ForeignWords()) {
    if (!args.empty() && args[0] == foreign.word) return RefuseForeign(foreign);
  }
  Words words = args.subspan(command == nullptr ? 0 : 1);
  std::string subject;
  bool lacks_subject = false;
  if (command != nullptr && command->subject != nullptr) {
    const std::vector<std::string> choices = ChoicesIn(command->subject);
    const bool is_named = !words.empty() && std::ranges::count(choices, words[0]) > 0;
    if (is_named || choices.size() == 1) subject = is_named ? words[0] : choices[0];
    if (is_named) words = words.subspan(1);
    lacks_subject = subject.empty();
  }
  std::vector<std::string> without_argument(words.begin(), words.end());
  if (command != nullptr && command->name == std::string_view("bench")) {
    RenameOldJson(*command, without_argument);
    words = without_argument;
  }
  if (command != nullptr && command->argument != nullptr) {
    const size_t at = FindArgument(*command, without_argument);
    if (at < without_argument.size()) {
      subject = without_argument[at];
      if (subject.empty()) {
        return InvalidArgumentError(absl::StrCat(command->name, " '': expected ",
                                                 ArgumentText(*command), " (an unset variable?)"));
      }
      without_argument.erase(without_argument.begin() + static_cast<ptrdiff_t>(at));
      words = without_argument;
    }
  }
  try {
    absl::StatusOr<CommandLine> line = Reading(command, words).Read();
    if (lacks_subject && (!line.ok() || line->print.empty())) {
      const std::string given =
          words.empty() || words[0].starts_with('-') ? "" : absl::StrCat(" ", Quoted(words[0]));
      return InvalidArgumentError(absl::StrCat(command->name, given, ": expected ddprun ",
                                               command->name, " ", command->subject));
    }
    if (line.ok()) line->subject = subject;
    if (line.ok() || command == nullptr) return line;
    return InvalidArgumentError(absl::StrCat(command->name, ": ", line.status().message()));
  } catch (const CLI::Error& error) {
    return absl::InternalError(absl::StrCat("cannot read the command line: ", error.what()));
  }
}

}  // namespace ddprun::launcher
