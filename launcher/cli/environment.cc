#include "launcher/cli/environment.h"

namespace ddprun::launcher {

std::optional<std::string> Environment::Get(std::string_view name) const {
  const std::string beginning = std::string(name) + "=";
  for (const std::string& variable : variables) {
    if (variable.starts_with(beginning)) return variable.substr(beginning.size());
  }
  return std::nullopt;
}

}  // namespace ddprun::launcher
