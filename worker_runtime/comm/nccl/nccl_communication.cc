#include "worker_runtime/comm/nccl/nccl_communication.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "worker_runtime/comm/exchange.h"
#include "worker_runtime/comm/slice.h"

namespace ddp::internal {
namespace {

// Between two looks at a call in progress. It is over in microseconds, or hangs.
constexpr std::chrono::microseconds kFirstLook(10);
constexpr std::chrono::microseconds kLastLook(2000);

NcclDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return kNcclFloat32;
    case DType::kFloat64:
      return kNcclFloat64;
    case DType::kFloat16:
      return kNcclFloat16;
    case DType::kBFloat16:
      return kNcclBfloat16;
    case DType::kInt32:
      return kNcclInt32;
    case DType::kInt64:
      return kNcclInt64;
    case DType::kUint8:
      return kNcclUint8;
  }
  return kNcclUint8;
}

NcclRedOp ReductionOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return kNcclSum;
    case ReduceOp::kAverage:
      return kNcclAvg;
    case ReduceOp::kMax:
      return kNcclMax;
    case ReduceOp::kMin:
      return kNcclMin;
    case ReduceOp::kProduct:
      return kNcclProd;
  }
  return kNcclSum;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunication>> NcclCommunication::Join(
    const LoadedNccl& nccl, const NcclUniqueId& id, int rank, int world_size,
    Clock::time_point deadline, const Interrupted& interrupted) {
  std::unique_ptr<NcclCommunication> joined(new NcclCommunication(nccl, rank, world_size));
  NcclConfig config;
  config.blocking = 0;
  NcclResult result =
      nccl.api.ncclCommInitRankConfig(&joined->comm_, world_size, id, rank, &config);
  std::chrono::microseconds look = kFirstLook;
  absl::Status status;
  while (result == kNcclInProgress && status.ok()) {
    std::this_thread::sleep_for(look);
    look = std::min(2 * look, kLastLook);
    result = joined->Progress();
    status = interrupted();
    if (status.ok() && result == kNcclInProgress && Clock::now() >= deadline) {
      status = absl::DeadlineExceededError("ncclCommInitRankConfig did not end");
    }
  }
  if (result != kNcclSuccess && result != kNcclInProgress) {
    status = joined->Explain("ncclCommInitRankConfig", result);
  }
  joined->is_joined_ = status.ok();
  if (status.ok()) return joined;
  joined->Abort();
  return status;
}

// What PyTorch does for them: NCCL has no calls of its own for these from its oldest version on.
NcclResult NcclCommunication::PassParts(const Op& op, CudaStream stream) {
  const NcclApi& api = nccl_.api;
  const NcclDataType type = TypeOf(op.dtype);
  const Exchange exchange(op, rank_, world_size_);
  NcclResult result = api.ncclGroupStart();
  if (result != kNcclSuccess) return result;
  NcclResult first = kNcclSuccess;
  for (int peer = 0; peer < world_size_ && first == kNcclSuccess; ++peer) {
    const char* input = At(op.input, exchange.InputBegin(peer), 1);
    char* output = At(op.output, exchange.OutputBegin(peer), 1);
    if (peer == rank_ && input == output) continue;  // in place
    if (exchange.Bytes(rank_, peer) != 0) {
      first = api.ncclSend(input, op.count, type, peer, comm_, stream);
    }
    if (exchange.Bytes(peer, rank_) != 0 && first == kNcclSuccess) {
      first = api.ncclRecv(output, op.count, type, peer, comm_, stream);
    }
  }
  result = api.ncclGroupEnd();
  return first == kNcclSuccess ? result : first;
}

NcclResult NcclCommunication::ReducePieces(const Op& op, CudaStream stream) {
  const NcclApi& api = nccl_.api;
  NcclResult result = api.ncclGroupStart();
  if (result != kNcclSuccess) return result;
  NcclResult first = kNcclSuccess;
  for (const Piece& piece : op.pieces) {
    if (piece.count == 0 || first != kNcclSuccess) continue;
    first = api.ncclAllReduce(piece.data, piece.data, piece.count, TypeOf(op.dtype),
                              ReductionOf(op.reduce), comm_, stream);
  }
  result = api.ncclGroupEnd();
  return first == kNcclSuccess ? result : first;
}

NcclResult NcclCommunication::Enqueue(const Op& op, CudaStream stream) {
  const NcclApi& api = nccl_.api;
  const NcclDataType type = TypeOf(op.dtype);
  const NcclRedOp reduce = ReductionOf(op.reduce);
  if (!op.pieces.empty()) return ReducePieces(op, stream);
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kBarrier:
      return api.ncclAllReduce(op.input, op.output, op.count, type, reduce, comm_, stream);
    case OpKind::kBroadcast:
      return api.ncclBroadcast(op.input, op.output, op.count, type, op.root, comm_, stream);
    case OpKind::kAllGather:
      return api.ncclAllGather(op.input, op.output, op.count, type, comm_, stream);
    case OpKind::kReduceScatter:
      return api.ncclReduceScatter(op.input, op.output, op.count, type, reduce, comm_, stream);
    case OpKind::kReduce:
      return api.ncclReduce(op.input, op.output, op.count, type, reduce, op.root, comm_, stream);
    case OpKind::kSendReceive:
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll:
      return PassParts(op, stream);
    case OpKind::kAllocate:
    case OpKind::kReplay:
      break;
  }
  DDP_CHECK(false);  // neither is an operation of NCCL
  return kNcclInvalidUsage;
}

NcclResult NcclCommunication::Progress() {
  NcclResult state = kNcclSuccess;
  const NcclResult result = nccl_.api.ncclCommGetAsyncError(comm_, &state);
  return result == kNcclSuccess ? state : result;
}

absl::Status NcclCommunication::Explain(const char* call, NcclResult result) const {
  return NcclStatus(nccl_.api, call, result, comm_);
}

absl::Status NcclCommunication::Finalize(Clock::time_point deadline,
                                         const std::atomic<bool>& is_interrupted) {
  if (comm_ == nullptr) return absl::OkStatus();
  NcclResult result = nccl_.api.ncclCommFinalize(comm_);
  while (result == kNcclInProgress && Clock::now() < deadline && !is_interrupted) {
    std::this_thread::sleep_for(kLastLook);
    result = Progress();
  }
  if (result == kNcclSuccess) {
    result = nccl_.api.ncclCommDestroy(comm_);
    comm_ = nullptr;
    return Explain("ncclCommDestroy", result);
  }
  absl::Status status = result == kNcclInProgress
                            ? absl::DeadlineExceededError("ncclCommFinalize did not end")
                            : Explain("ncclCommFinalize", result);
  Abort();
  return status;
}

void NcclCommunication::Abort() {
  if (comm_ == nullptr) return;
  // Revoking quiesces without freeing, so that the abort meets nothing under way. Its result does
  // not matter: the abort follows in any case. NCCL takes no revocation before a group is complete,
  // nor beside a call in progress, whose state it frees (seen in its source, 2.28.7).
  if (nccl_.can_revoke() && is_joined_ && Progress() != kNcclInProgress) {
    (void)nccl_.api.ncclCommRevoke(comm_, kNcclRevokeDefault);
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
    while (Progress() == kNcclInProgress && Clock::now() < deadline) {
      std::this_thread::sleep_for(kLastLook);
    }
  }
  (void)nccl_.api.ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace ddp::internal
