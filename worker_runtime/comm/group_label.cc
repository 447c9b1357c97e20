#include "worker_runtime/comm/group_label.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/fnv1a.h"

namespace ddp::internal {
namespace {

// With "nccl, " before it and " and 1000000 more" behind it, it has room in a slot of the page.
constexpr size_t kMostBytes = 36;

uint64_t NotZero(uint64_t key) { return key == 0 ? 1 : key; }

}  // namespace

GroupLabel MakeGroupLabel(std::string_view told, const std::vector<int>& job_ranks) {
  ddprun::Fnv1a hash;
  hash.Add(told.data(), told.size());
  std::vector<int> ascending = job_ranks;
  std::sort(ascending.begin(), ascending.end());
  return {.key = NotZero(hash.value()), .ranks = NameRankRanges(ascending)};
}

uint64_t KeyOf(const GroupLabel& label, std::string_view backend) {
  ddprun::Fnv1a hash;
  hash.Add(&label.key, sizeof label.key);
  hash.Add(backend.data(), backend.size());
  return NotZero(hash.value());
}

std::string NameRankRanges(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    while (++end < ranks.size() && ranks[end] == ranks[end - 1] + 1) continue;
    std::string range = absl::StrCat(begin == 0 ? "" : ", ", ranks[begin]);
    if (end > begin + 1) absl::StrAppend(&range, "-", ranks[end - 1]);
    if (text.size() + range.size() > kMostBytes) {
      return absl::StrCat(text, " and ", ranks.size() - begin, " more");
    }
    text += range;
  }
  return text;
}

}  // namespace ddp::internal
