#include "launcher/logs/line_filter.h"

#include <algorithm>

namespace ddprun::launcher {

bool LineFilter::Matches(std::string_view line) const {
  return std::any_of(texts_.begin(), texts_.end(), [line](const std::string& text) {
    return line.find(text) != std::string_view::npos;
  });
}

}  // namespace ddprun::launcher
