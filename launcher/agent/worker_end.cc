#include "launcher/agent/worker_end.h"

#include <cstddef>

namespace ddprun::launcher {

std::string RangesText(const std::vector<int>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!out.empty()) out += ", ";
    out += std::to_string(ranks[i]);
    if (end - i > 1) out += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return out;
}

std::string RanksText(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + RangesText(ranks);
}

}  // namespace ddprun::launcher
