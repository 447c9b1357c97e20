#include "worker_runtime/comm/nccl/nccl_communication.h"

#include "rendezvous/base/check.h"
#include "worker_runtime/comm/exchange.h"
#include "worker_runtime/comm/slice.h"

namespace ddp::internal {
namespace {

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
    case DType::kInt8:
      return kNcclInt8;
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
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;  // refused before
  }
  return kNcclSum;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunication>> NcclCommunication::Join(const LoadedNccl& nccl,
                                                                           const NcclUniqueId& id,
                                                                           int rank,
                                                                           int world_size) {
  std::unique_ptr<NcclCommunication> joined(new NcclCommunication(nccl, rank, world_size));
  NcclConfig config;
  config.blocking = 1;
  const NcclResult result =
      nccl.api.ncclCommInitRankConfig(&joined->comm_, world_size, id, rank, &config);
  if (result == kNcclInProgress) {
    return absl::FailedPreconditionError(
        "NCCL's configuration asks for non-blocking communicators (NCCL_COMM_BLOCKING=0), "
        "which the library does not follow; unset it");
  }
  // What failed is gone: its text is that of the thread's last call.
  if (result != kNcclSuccess) {
    return NcclStatus(nccl.api, "ncclCommInitRankConfig", result, nullptr);
  }
  joined->is_open_ = true;
  return joined;
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

NcclResult NcclCommunication::AsyncError() {
  NcclResult state = kNcclSuccess;
  const NcclResult result = nccl_.api.ncclCommGetAsyncError(comm_, &state);
  return result == kNcclSuccess ? state : result;
}

absl::Status NcclCommunication::Explain(const char* call, NcclResult result) const {
  return NcclStatus(nccl_.api, call, result, comm_);
}

absl::Status NcclCommunication::Finalize() {
  if (!is_open_) return absl::OkStatus();
  const NcclResult result = nccl_.api.ncclCommFinalize(comm_);
  if (result != kNcclSuccess) {
    absl::Status status = Explain("ncclCommFinalize", result);
    Abort();
    return status;
  }
  is_open_ = false;
  return NcclStatus(nccl_.api, "ncclCommDestroy", nccl_.api.ncclCommDestroy(comm_), nullptr);
}

void NcclCommunication::Abort() {
  if (is_open_.exchange(false)) (void)nccl_.api.ncclCommAbort(comm_);
}

}  // namespace ddp::internal
