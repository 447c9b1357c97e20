#include "worker_runtime/comm/op.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ddp::internal {

std::string Describe(const Op& op) {
  const char* reduce = Name(op.reduce);
  const std::string number = op.sequence == 0 ? "" : absl::StrCat(" #", op.sequence);
  const std::string elements = absl::StrCat(Name(op.dtype), " x ", op.count);
  switch (op.kind) {
    case OpKind::kAllReduce:
      return absl::StrCat("all-reduce", number, " (", elements, ", ", reduce, ")");
    case OpKind::kBroadcast:
      return absl::StrCat("broadcast", number, " (", elements, ", root ", op.root, ")");
    case OpKind::kAllGather:
      return absl::StrCat("all-gather", number, " (", elements, ")");
    case OpKind::kReduceScatter:
      return absl::StrCat("reduce-scatter", number, " (", elements, ", ", reduce, ")");
    case OpKind::kBarrier:
      return absl::StrCat("barrier", number);
    case OpKind::kAllocate:
      return absl::StrCat("allocate", number, " (", op.count, " bytes)");
    case OpKind::kSendReceive:
      return absl::StrCat("send-receive", number, " (", elements, ")");
    case OpKind::kReplay:
      return absl::StrCat("graph replay", number, " (", op.count,
                          op.count == 1 ? " operation)" : " operations)");
  }
  return "?";
}

absl::Status CheckArguments(const Op& op, int world_size) {
  if (op.kind == OpKind::kBroadcast && (op.root < 0 || op.root >= world_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", op.root, " in a group of ", world_size, " ranks"));
  }
  const bool is_pair = op.kind == OpKind::kSendReceive;
  if (is_pair && std::max(op.root, op.source) >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("send to rank ", op.root,
                                                   " and receive from rank ", op.source,
                                                   " in a group of ", world_size, " ranks"));
  }
  // A buffer's parts of all ranks are mapped side by side, as the larger side of a gather is.
  const bool is_of_all = op.kind == OpKind::kAllGather || op.kind == OpKind::kReduceScatter ||
                         op.kind == OpKind::kAllocate;
  const size_t parts = is_of_all ? static_cast<size_t>(world_size) : 1;
  if (op.count > static_cast<size_t>(PTRDIFF_MAX) / SizeOf(op.dtype) / parts) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(op), " in a group of ", world_size,
                                                   " ranks: more bytes than can be addressed"));
  }
  if (op.count != 0 && op.kind != OpKind::kAllocate) {
    const bool has_input = op.input != nullptr || (is_pair && op.root < 0);
    const bool has_output = op.output != nullptr || (is_pair && op.source < 0);
    const char* null = !has_input ? "input" : !has_output ? "output" : nullptr;
    if (null != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(op), ": the ", null, " is a null pointer"));
    }
  }
  return absl::OkStatus();
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
