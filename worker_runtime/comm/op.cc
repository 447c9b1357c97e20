#include "worker_runtime/comm/op.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ddp::internal {

namespace {

// "broadcast from", "gather to"; null for an operation without a root.
const char* TowardRoot(OpKind kind) {
  if (kind == OpKind::kBroadcast) return "broadcast from";
  if (kind == OpKind::kReduce) return "reduce to";
  if (kind == OpKind::kGather) return "gather to";
  return kind == OpKind::kScatter ? "scatter from" : nullptr;
}

bool IsOfFloats(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

// The ranks that the call names.
absl::Status CheckRanks(const Op& op, int rank, int world_size) {
  const char* toward_root = TowardRoot(op.kind);
  if (toward_root != nullptr && (op.root < 0 || op.root >= world_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(toward_root, " rank ", op.root, " in a group of ", world_size, " ranks"));
  }
  if (op.kind != OpKind::kSendReceive) return absl::OkStatus();
  if (std::min(op.destination, op.source) < -1 ||
      std::max(op.destination, op.source) >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("send to rank ", op.destination,
                                                   " and receive from rank ", op.source,
                                                   " in a group of ", world_size, " ranks"));
  }
  if ((op.destination == rank) != (op.source == rank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("send to rank ", op.destination, " and receive from rank ", op.source,
                     " on rank ", rank, ": what a rank sends to itself it receives from itself"));
  }
  return absl::OkStatus();
}

// An all-reduce and a broadcast have one buffer. The others' two may be one only in this way: what
// stays on the rank is there already.
absl::Status CheckOverlap(const Op& op, const Extent& extent, int rank) {
  if (extent.input == 0 || extent.output == 0) return absl::OkStatus();
  const size_t size = SizeOf(op.dtype);
  const uintptr_t input = reinterpret_cast<uintptr_t>(op.input);
  const uintptr_t output = reinterpret_cast<uintptr_t>(op.output);
  if (input + extent.input * size <= output || output + extent.output * size <= input) {
    return absl::OkStatus();
  }
  const uintptr_t own = static_cast<uintptr_t>(rank) * op.bytes();
  bool is_in_place = false;
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kReduce:
    case OpKind::kBarrier:
      is_in_place = input == output;
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      is_in_place = input == output + own;
      break;
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
      is_in_place = output == input + own;
      break;
    case OpKind::kAllToAll:
    case OpKind::kSendReceive:
    case OpKind::kAllocate:
    case OpKind::kReplay:
      break;
  }
  if (is_in_place) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(op), ": the input and the output overlap"));
}

}  // namespace

std::string Describe(const Op& op) {
  const char* reduce = Name(op.reduce);
  const std::string number = op.sequence == 0 ? "" : absl::StrCat(" #", op.sequence);
  const std::string elements = absl::StrCat(Name(op.dtype), " x ", op.count);
  switch (op.kind) {
    case OpKind::kAllReduce:
      return absl::StrCat(
          "all-reduce", number, " (", elements,
          op.pieces.empty() ? "" : absl::StrCat(" in ", op.pieces.size(), " pieces"), ", ", reduce,
          ")");
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
    case OpKind::kReduce:
      return absl::StrCat("reduce", number, " (", elements, ", ", reduce, ", root ", op.root, ")");
    case OpKind::kGather:
      return absl::StrCat("gather", number, " (", elements, ", root ", op.root, ")");
    case OpKind::kScatter:
      return absl::StrCat("scatter", number, " (", elements, ", root ", op.root, ")");
    case OpKind::kAllToAll:
      return absl::StrCat("all-to-all", number, " (", elements, ")");
    case OpKind::kReplay:
      return absl::StrCat("graph replay", number, " (", op.count,
                          op.count == 1 ? " operation)" : " operations)");
  }
  return "?";
}

Op WithoutPieces(const Op& op, void* data, size_t count) {
  return {.kind = op.kind,
          .dtype = op.dtype,
          .reduce = op.reduce,
          .root = op.root,
          .count = count,
          .sequence = op.sequence,
          .input = data,
          .output = data,
          .timeout = op.timeout,
          .deadline = op.deadline,
          .is_awaited = op.is_awaited};
}

Extent ExtentOf(const Op& op, int rank, int world_size) {
  const size_t all = op.count * static_cast<size_t>(world_size);
  const bool is_root = op.root == rank;
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kBarrier:
      return {op.count, op.count};
    case OpKind::kAllGather:
      return {op.count, all};
    case OpKind::kReduceScatter:
      return {all, op.count};
    case OpKind::kReduce:
      return {op.count, is_root ? op.count : 0};
    case OpKind::kGather:
      return {op.count, is_root ? all : 0};
    case OpKind::kScatter:
      return {is_root ? all : 0, op.count};
    case OpKind::kAllToAll:
      return {all, all};
    case OpKind::kSendReceive:
      return {op.destination >= 0 ? op.count : 0, op.source >= 0 ? op.count : 0};
    case OpKind::kAllocate:
    case OpKind::kReplay:
      return {};
  }
  return {};
}

absl::Status CheckArguments(const Op& op, int rank, int world_size) {
  // Before anything names them.
  if (SizeOf(op.dtype) == 0 || op.reduce > ReduceOp::kBitXor) {
    return absl::InvalidArgumentError(
        absl::StrCat("a collective of element type ", static_cast<int>(op.dtype), " and reduction ",
                     static_cast<int>(op.reduce), ": ddp/dtype.h does not have both"));
  }
  if (IsBitwise(op.reduce) && IsOfFloats(op.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(op), ": operations on bits are for integers"));
  }
  absl::Status status = CheckRanks(op, rank, world_size);
  if (!status.ok()) return status;
  // A buffer's parts of all ranks are mapped side by side.
  const bool is_of_one = op.kind == OpKind::kAllReduce || op.kind == OpKind::kBroadcast ||
                         op.kind == OpKind::kReduce || op.kind == OpKind::kSendReceive;
  const size_t parts = is_of_one ? 1 : static_cast<size_t>(world_size);
  if (op.count > static_cast<size_t>(PTRDIFF_MAX) / SizeOf(op.dtype) / parts) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(op), " in a group of ", world_size,
                                                   " ranks: more bytes than can be addressed"));
  }
  for (const Piece& piece : op.pieces) {
    if (piece.data != nullptr || piece.count == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(op), ": piece ", &piece - op.pieces.data(), " is a null pointer"));
  }
  if (!op.pieces.empty()) return absl::OkStatus();
  const Extent extent = ExtentOf(op, rank, world_size);
  const bool lacks_input = extent.input != 0 && op.input == nullptr;
  const bool lacks_output = extent.output != 0 && op.output == nullptr;
  if (lacks_input || lacks_output) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(op), ": the ", lacks_input ? "input" : "output", " is a null pointer"));
  }
  return CheckOverlap(op, extent, rank);
}

absl::Status AfterEnd(const absl::Status& error, absl::string_view call) {
  if (!absl::IsInvalidArgument(error)) return error;
  return absl::FailedPreconditionError(
      absl::StrCat("the group has ended before ", call, ": ", error.message()));
}

bool IsBitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
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
