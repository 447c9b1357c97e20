#include "launcher/cli/text.h"

#include <algorithm>
#include <cstddef>

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

}  // namespace

std::string Quoted(std::string_view value) {
  const bool is_long = value.size() > kMaxQuoted;
  return "'" + EscapeControl(value.substr(0, kMaxQuoted)) + (is_long ? "...'" : "'");
}

std::string Underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
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

std::string ReplaceMacro(std::string_view text, std::string_view name, std::string_view value) {
  const std::string macro = "${" + std::string(name) + "}";
  std::string out;
  for (;;) {
    const size_t at = text.find(macro);
    if (at == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, at)).append(value);
    text.remove_prefix(at + macro.size());
  }
}

}  // namespace ddprun::launcher
