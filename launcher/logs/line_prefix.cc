#include "launcher/logs/line_prefix.h"

#include <optional>

#include "absl/strings/ascii.h"

namespace ddprun::launcher {
namespace {

std::optional<std::string> ValueOf(std::string_view name, const LinePrefixValues& values) {
  if (name == "role_name") return values.role_name;
  if (name == "rank") return std::to_string(values.rank);
  if (name == "local_rank") return std::to_string(values.local_rank);
  if (name == "hostname") return values.hostname;
  return std::nullopt;
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

std::string LinePrefix(std::string_view pattern, const LinePrefixValues& values) {
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
    const std::optional<std::string> value = is_whole ? ValueOf(name, values) : std::nullopt;
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
