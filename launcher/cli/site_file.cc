#include "launcher/cli/site_file.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "launcher/cli/variable_table.h"

namespace ddprun::launcher {
namespace {

absl::Status RefuseName(const std::string& place, const std::string& name) {
  std::vector<std::string> known;
  for (const OptionRow& row : OptionTable()) {
    if (row.old != nullptr) continue;
    for (std::string& variable : VariablesOf(row)) known.push_back(std::move(variable));
  }
  std::string meant = DidYouMean(name, known);
  for (const VariableGroup& group : VariableTable()) {
    for (const VariableRow& row : group.rows) {
      if (name == row.name) meant.clear();  // it is meant, and does not belong here
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      place, ": ", Quoted(name), " is no option's variable",
      meant.empty() ? "; expected PET_<OPTION>, or DDPRUN_<OPTION> for an option that torchrun "
                      "lacks: set other variables in the job's environment"
                    : meant));
}

}  // namespace

absl::StatusOr<std::map<std::string, GivenValue>> ParseSiteFile(const SiteFile& file) {
  std::map<std::string, GivenValue> values;
  if (!file.trouble.empty()) return absl::InvalidArgumentError(file.trouble);
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(file.text, '\n')) {
    const std::string line(absl::StripAsciiWhitespace(whole));
    const std::string place = absl::StrCat(EscapeControl(file.path), ":", ++number);
    if (line.empty() || line[0] == '#') continue;
    const size_t sign = line.find('=');
    if (sign == std::string::npos || line.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": ", Quoted(line), ": expected NAME=VALUE, or a comment after #"));
    }
    const std::string name = line.substr(0, sign);
    if (FindOptionOfVariable(name) == nullptr) return RefuseName(place, name);
    const GivenValue value = {.text = line.substr(sign + 1),
                              .source = absl::StrCat(name, " (", place, ")"),
                              .is_default = true};
    const auto [known, is_new] = values.emplace(name, value);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": ", name, " has a value already, ",
                                                     known->second.source, ": remove one"));
    }
  }
  return values;
}

}  // namespace ddprun::launcher
