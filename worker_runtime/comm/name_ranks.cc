#include "worker_runtime/comm/name_ranks.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace ddp::internal {

std::string NameRanks(const std::vector<int>& ranks) {
  constexpr size_t kShown = 8;
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  std::string text = "ranks ";
  const size_t shown = ranks.size() > kShown + 1 ? kShown : ranks.size();
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == ranks.size();
    absl::StrAppend(&text, i == 0 ? "" : is_last ? " and " : ", ", ranks[i]);
  }
  if (shown < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - shown, " more");
  return text;
}

}  // namespace ddp::internal
