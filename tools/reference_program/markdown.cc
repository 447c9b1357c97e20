#include "tools/reference_program/markdown.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace ddprun::reference {
namespace {

constexpr size_t kWidth = 100;

std::string WithCode(std::string_view word) {
  const size_t begin = word.find_first_not_of("('");
  const size_t end = word.find_last_not_of("),.:;'");
  if (begin == std::string_view::npos || end == std::string_view::npos || begin > end) {
    return std::string(word);
  }
  const std::string_view core = word.substr(begin, end + 1 - begin);
  const bool is_english =
      core.size() == 1 || (core[0] != '-' && core.find_first_of("_$<>{}*=|/") == core.npos);
  if (is_english) return std::string(word);
  return absl::StrCat(std::string(word.substr(0, begin)), Code(core),
                      std::string(word.substr(end + 1)));
}

}  // namespace

std::string Code(std::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", std::string(text), "`");
}

std::string Prose(std::string_view text) {
  std::vector<std::string> words;
  bool is_code = false;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ' ')) {
    const auto marks = std::count(word.begin(), word.end(), '`');
    const bool is_kept = is_code || marks > 0;
    words.push_back(is_kept ? std::string(word)
                            : WithCode(std::string_view(word.data(), word.size())));
    is_code = is_code != (marks % 2 == 1);
  }
  return absl::StrJoin(words, " ");
}

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    absl::StrAppend(&row, " ", absl::StrReplaceAll(cell, {{"|", "\\|"}}), " |");
  }
  return row + "\n";
}

std::string Head(const std::vector<std::string>& names) {
  std::string line = "|";
  for (size_t i = 0; i < names.size(); ++i) line += "---|";
  return absl::StrCat(Row(names), line, "\n");
}

std::string Wrapped(std::string_view text) {
  std::string out;
  size_t column = 0;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ' ')) {
    const bool fits = column == 0 || column + 1 + word.size() <= kWidth;
    absl::StrAppend(&out, column == 0 ? "" : fits ? " " : "\n", word);
    column = column > 0 && fits ? column + 1 + word.size() : word.size();
  }
  return out + "\n";
}

}  // namespace ddprun::reference
