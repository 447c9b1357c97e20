#include "launcher/cli/node_list.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr size_t kMaxNames = 65536;  // Slurm's MAX_RANGE
constexpr size_t kMaxDigits = 18;    // fit 64 bits

// "n" and the numbers that may follow it, as texts.
struct Group {
  std::string prefix;
  std::vector<std::string> numbers;
};

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

absl::Status TooMany() {
  return InvalidArgumentError(absl::StrCat("expected at most ", kMaxNames, " names"));
}

// Appends what "7" or "08-12" stands for: numbers are as wide as the first.
absl::Status AddRange(absl::string_view range, std::vector<std::string>& numbers) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(range, absl::MaxSplits('-', 1));
  const bool is_single = range.find('-') == absl::string_view::npos;
  const absl::string_view last_text = is_single ? ends.first : ends.second;
  uint64_t first = 0, last = 0;
  if (!IsNumber(ends.first) || !IsNumber(last_text) || !absl::SimpleAtoi(ends.first, &first) ||
      !absl::SimpleAtoi(last_text, &last) || first > last) {
    return InvalidArgumentError(
        absl::StrCat(Quoted(std::string(range)), " is no range; expected numbers as in [1-3,07]"));
  }
  if (last - first >= kMaxNames - numbers.size()) return TooMany();
  for (uint64_t number = first; number <= last; ++number) {
    numbers.push_back(absl::StrFormat("%0*d", static_cast<int>(ends.first.size()), number));
  }
  return absl::OkStatus();
}

// Splits at the commas and blanks that stand in no bracket; two in a row are as one.
absl::StatusOr<std::vector<absl::string_view>> SplitNames(absl::string_view text) {
  std::vector<absl::string_view> parts;
  size_t begin = 0;
  bool is_in_bracket = false;
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    if (at < text.size() && (c == '[' || c == ']')) {
      if (is_in_bracket == (c == '[')) return InvalidArgumentError("its brackets do not match");
      is_in_bracket = c == '[';
    }
    const bool is_separator = c == ',' || absl::ascii_isspace(c);
    if (!is_separator || (is_in_bracket && at < text.size())) continue;
    if (at > begin) parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  if (is_in_bracket) return InvalidArgumentError("its brackets do not match");
  return parts;
}

absl::StatusOr<std::vector<Group>> GroupsOf(absl::string_view name) {
  std::vector<Group> groups;
  while (!name.empty()) {
    const size_t open = name.find('[');
    if (open == absl::string_view::npos) {
      if (!groups.empty()) return InvalidArgumentError("expected nothing behind the last ]");
      groups.push_back({.prefix = std::string(name), .numbers = {""}});
      break;
    }
    const size_t close = name.find(']', open);
    Group group{.prefix = std::string(name.substr(0, open)), .numbers = {}};
    for (const absl::string_view range :
         absl::StrSplit(name.substr(open + 1, close - open - 1), ',')) {
      if (absl::Status status = AddRange(range, group.numbers); !status.ok()) return status;
    }
    groups.push_back(std::move(group));
    name.remove_prefix(close + 1);
  }
  return groups;
}

// Every choice of one number for each group. Slurm's order: the last group changes with each name,
// then the first, then the second.
absl::Status AddNames(const std::vector<Group>& groups, std::vector<std::string>& names) {
  size_t count = 1;
  for (const Group& group : groups) {
    if (group.numbers.size() > kMaxNames / count) return TooMany();
    count *= group.numbers.size();
  }
  if (count > kMaxNames - names.size()) return TooMany();
  const Group& last = groups.back();
  for (size_t outer = 0; outer < count / last.numbers.size(); ++outer) {
    std::string beginning;
    size_t left = outer;
    for (size_t i = 0; i + 1 < groups.size(); ++i) {
      const std::vector<std::string>& numbers = groups[i].numbers;
      absl::StrAppend(&beginning, groups[i].prefix, numbers[left % numbers.size()]);
      left /= numbers.size();
    }
    for (const std::string& number : last.numbers) {
      names.push_back(absl::StrCat(beginning, last.prefix, number));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandNodeList(const std::string& text) {
  const absl::StatusOr<std::vector<absl::string_view>> parts = SplitNames(text);
  if (!parts.ok()) return parts.status();
  std::vector<std::string> names;
  for (const absl::string_view part : *parts) {
    const absl::StatusOr<std::vector<Group>> groups = GroupsOf(part);
    if (!groups.ok()) return groups.status();
    if (absl::Status status = AddNames(*groups, names); !status.ok()) return status;
  }
  if (names.empty()) return InvalidArgumentError("expected the name of a node at least");
  return names;
}

}  // namespace ddprun::launcher
