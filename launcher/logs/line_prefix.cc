#include "launcher/logs/line_prefix.h"

#include <optional>

#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

std::optional<std::string> ValueOf(std::string_view name, const LinePrefixValues& values) {
  if (name == "role_name") return values.role_name;
  if (name == "rank") return std::to_string(values.rank);
  if (name == "local_rank") return std::to_string(values.local_rank);
  if (name == "hostname") return values.hostname;
  return std::nullopt;
}

}  // namespace

std::string LinePrefix(std::string_view pattern, const LinePrefixValues& values) {
  return WithMacros(pattern, [&](std::string_view name) { return ValueOf(name, values); });
}

}  // namespace ddprun::launcher
