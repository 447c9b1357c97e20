#include "launcher/cli/spelling.h"

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr char kMark = '\0';

std::string MarkedAt(std::string word, size_t at) { return word.insert(at, 1, kMark); }

// Without the dashes and the value.
std::string_view LongName(std::string_view word) { return word.substr(2, word.find('=') - 2); }

bool IsLong(std::string_view word) { return word.size() > 2 && word.substr(0, 2) == "--"; }

}  // namespace

Spelling::Spelling(std::span<const OptionRow> rows, std::span<const std::string> words)
    : rows_(rows) {
  marked_.reserve(words.size());
  for (const std::string& word : words) marked_.push_back(Marked(word));
}

std::string Spelling::NamesOf(const OptionRow& row) const {
  std::string names = absl::StrCat("--", row.name);
  if (row.letter != 0) absl::StrAppend(&names, ",-", std::string(1, row.letter));
  const auto found = spellings_.find(&row);
  if (found == spellings_.end()) return names;
  for (const std::string& spelling : found->second) absl::StrAppend(&names, ",--", spelling);
  return names;
}

std::string Spelling::Marked(const std::string& word) {
  if (IsLong(word)) {
    const std::string_view name = LongName(word);
    const std::vector<const OptionRow*> found = FindLong(name);
    if (found.size() != 1) return word;
    std::set<std::string>& spellings = spellings_[found[0]];
    if (name != found[0]->name) spellings.emplace(name);
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return word;
    const bool has_value = equals + 1 < word.size();
    return has_value && !found[0]->is_flag() ? word : MarkedAt(word, equals + 1);
  }
  if (word.size() < 2 || word[0] != '-' || word == "--") return word;
  // Letters of flags, then perhaps one whose value follows: -mr3.
  for (size_t at = 1; at < word.size(); ++at) {
    const OptionRow* row = FindLetter(word[at]);
    if (row == nullptr) break;
    spellings_[row];
    if (row->is_flag()) {
      if (at + 1 == word.size()) return word;
      continue;
    }
    return at + 1 < word.size() && word[at + 1] == '=' ? MarkedAt(word, at + 1) : word;
  }
  return MarkedAt(word, 1);  // CLI11 would take the letters that it knows
}

// Those that `name` is or, as argparse has it, begins.
std::vector<const OptionRow*> Spelling::FindLong(std::string_view name) const {
  const std::string wanted = Underscored(name);
  std::vector<const OptionRow*> found;
  for (const OptionRow& row : rows_) {
    const std::string_view whole = row.name;
    if (whole == wanted) return {&row};
    if (!wanted.empty() && whole.substr(0, wanted.size()) == wanted) found.push_back(&row);
  }
  return found;
}

const OptionRow* Spelling::FindLetter(char letter) const {
  for (const OptionRow& row : rows_) {
    if (row.letter != 0 && row.letter == letter) return &row;
  }
  return nullptr;
}

absl::Status Spelling::Refuse(const std::string& word) const {
  const std::string quoted = Quoted(IsLong(word) ? word.substr(0, word.find('=')) : word);
  const std::string_view name = IsLong(word) ? LongName(word) : std::string_view(word).substr(1);
  if (const std::vector<const OptionRow*> found = FindLong(name);
      IsLong(word) && found.size() > 1) {
    std::string could_be;
    for (const OptionRow* row : found) {
      absl::StrAppend(&could_be, could_be.empty() ? "--" : ", --", row->name);
    }
    return InvalidArgumentError(absl::StrCat("option ", quoted, " could be ", could_be));
  }
  const std::string wanted = Underscored(name);
  if (wanted == "use_env" || wanted == "no_use_env") {
    return InvalidArgumentError(absl::StrCat(
        "option ", quoted,
        " is torch.distributed.launch's; leave it out: workers always find LOCAL_RANK in the "
        "environment (a script that wants an argument takes '--local-rank=${local_rank}')"));
  }
  std::vector<std::string> names;
  for (const OptionRow& row : rows_) names.emplace_back(row.name);
  const std::string nearest = NearestName(name, names);
  return InvalidArgumentError(
      absl::StrCat("unknown option ", quoted, nearest.empty() ? "" : "; did you mean --", nearest,
                   nearest.empty() ? "; ddprun --help lists the options" : "?",
                   " (an option of the program goes after the program)"));
}

const OptionRow& Spelling::OptionOf(const std::string& word) const {
  const OptionRow* row = FindLetter(word.back());
  if (IsLong(word)) row = FindLong(LongName(word)).at(0);
  DDP_CHECK(row != nullptr);
  return *row;
}

bool IsMarked(std::string_view text) { return text.find(kMark) != std::string_view::npos; }

std::string Unmarked(std::string text) {
  const size_t at = text.find(kMark);
  if (at == std::string::npos) return text;
  // In front stands the mark of a value: `=3` behind a letter, or one that is empty or a flag's.
  const bool has_equals = at == 0 && text.size() > 1 && text[1] == '=';
  return text.erase(at, has_equals ? 2 : 1);
}

}  // namespace ddprun::launcher
