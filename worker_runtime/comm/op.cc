#include "worker_runtime/comm/op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddp::internal {

std::string Describe(const Op& op) {
  const char* reduce = op.reduce == ReduceOp::kSum ? "sum" : "average";
  const std::string elements = absl::StrCat(Name(op.dtype), " x ", op.count);
  switch (op.kind) {
    case OpKind::kAllReduce:
      return absl::StrCat("all-reduce #", op.sequence, " (", elements, ", ", reduce, ")");
    case OpKind::kBroadcast:
      return absl::StrCat("broadcast #", op.sequence, " (", elements, ", root ", op.root, ")");
    case OpKind::kAllGather:
      return absl::StrCat("all-gather #", op.sequence, " (", elements, ")");
    case OpKind::kReduceScatter:
      return absl::StrCat("reduce-scatter #", op.sequence, " (", elements, ", ", reduce, ")");
    case OpKind::kBarrier:
      return absl::StrCat("barrier #", op.sequence);
    case OpKind::kAllocate:
      return absl::StrCat("allocate #", op.sequence, " (", op.count, " bytes)");
  }
  return "?";
}

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

std::string NameDuration(std::chrono::milliseconds duration) {
  if (duration.count() % 1000 == 0) return absl::StrCat(duration.count() / 1000, " s");
  return absl::StrCat(duration.count(), " ms");
}

bool IsStuck(const Op& op) {
  const auto patience = std::clamp<std::chrono::milliseconds>(
      op.timeout / 4, std::chrono::milliseconds(50), std::chrono::seconds(10));
  return Clock::now() - (op.deadline - op.timeout) >= patience;
}

}  // namespace ddp::internal
