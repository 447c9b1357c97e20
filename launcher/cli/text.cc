#include "launcher/cli/text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxQuoted = 200;

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

// The name that `text` begins with; empty: none.
std::string_view NameAtStart(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && (absl::ascii_isalnum(text[length]) || text[length] == '_')) {
    ++length;
  }
  const bool is_name = length > 0 && !absl::ascii_isdigit(text[0]);
  return text.substr(0, is_name ? length : 0);
}

}  // namespace

std::string Quoted(std::string_view value) {
  const bool is_long = value.size() > kMaxQuoted;
  return "'" + EscapeControl(value.substr(0, kMaxQuoted)) + (is_long ? "...'" : "'");
}

std::string Underscored(std::string_view name) {
  return absl::StrReplaceAll(std::string(name), {{"-", "_"}});
}

std::string Dashed(std::string_view name) {
  return "--" + absl::StrReplaceAll(std::string(name), {{"_", "-"}});
}

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > kMaxQuoted) return "";
  const std::string wanted = Underscored(name);
  std::string nearest;
  size_t least = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(wanted, Underscored(candidate));
    if (distance < least && distance < candidate.size()) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates,
                       const char* prefix) {
  const std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", prefix, nearest, "?");
}

std::string WithMacros(
    std::string_view pattern,
    const std::function<std::optional<std::string>(std::string_view)>& value_of) {
  std::string out;
  while (!pattern.empty()) {
    const size_t dollar = pattern.find('$');
    out.append(pattern.substr(0, dollar));
    if (dollar == std::string_view::npos) break;
    pattern.remove_prefix(dollar);
    const bool is_braced = pattern.substr(0, 2) == "${";
    const std::string_view name = NameAtStart(pattern.substr(is_braced ? 2 : 1));
    const size_t end = is_braced ? 2 + name.size() : 1 + name.size();
    const bool is_whole = !is_braced || pattern.substr(end, 1) == "}";
    const std::optional<std::string> value = is_whole ? value_of(name) : std::nullopt;
    if (value) {
      out.append(*value);
      pattern.remove_prefix(end + (is_braced ? 1 : 0));
    } else {
      out.push_back('$');
      pattern.remove_prefix(pattern.substr(0, 2) == "$$" ? 2 : 1);
    }
  }
  return out;
}

}  // namespace ddprun::launcher
