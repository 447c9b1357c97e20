#include "worker_runtime/comm/group_communicator.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "rendezvous/base/fnv1a.h"

namespace ddp::internal {
namespace {

// A number for where the pieces are cut, so that ranks which cut otherwise hear of it; 0 for one.
int32_t CutsOf(const std::vector<Piece>& pieces) {
  if (pieces.size() <= 1) return 0;
  ddprun::Fnv1a cuts;
  for (const Piece& piece : pieces) cuts.Add(&piece.count, sizeof(piece.count));
  return static_cast<int32_t>(cuts.value() >> 32) | 1;
}

}  // namespace

std::unique_ptr<Work> GroupCommunicator::AllReduce(void* data, size_t count, DType dtype,
                                                   ReduceOp op, ddp::Stream stream) {
  return Submit({.kind = OpKind::kAllReduce,
                 .dtype = dtype,
                 .reduce = op,
                 .count = count,
                 .input = data,
                 .output = data},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::AllReduceCoalesced(std::vector<Piece> pieces, DType dtype,
                                                            ReduceOp op, ddp::Stream stream) {
  size_t count = 0;
  // What is more than can be counted is more than can be addressed, and refused as that.
  for (const Piece& piece : pieces) count += std::min(piece.count, SIZE_MAX - count);
  return Submit({.kind = OpKind::kAllReduce,
                 .dtype = dtype,
                 .reduce = op,
                 .root = CutsOf(pieces),
                 .count = count,
                 .pieces = std::move(pieces)},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::Broadcast(void* data, size_t count, DType dtype, int root,
                                                   ddp::Stream stream) {
  return Submit({.kind = OpKind::kBroadcast,
                 .dtype = dtype,
                 .root = root,
                 .count = count,
                 .input = data,
                 .output = data},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::AllGather(const void* input, void* output, size_t count,
                                                   DType dtype, ddp::Stream stream) {
  return Submit({.kind = OpKind::kAllGather,
                 .dtype = dtype,
                 .count = count,
                 .input = input,
                 .output = output},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::ReduceScatter(const void* input, void* output,
                                                       size_t count, DType dtype, ReduceOp op,
                                                       ddp::Stream stream) {
  return Submit({.kind = OpKind::kReduceScatter,
                 .dtype = dtype,
                 .reduce = op,
                 .count = count,
                 .input = input,
                 .output = output},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::Reduce(const void* input, void* output, size_t count,
                                                DType dtype, ReduceOp op, int root,
                                                ddp::Stream stream) {
  return Submit({.kind = OpKind::kReduce,
                 .dtype = dtype,
                 .reduce = op,
                 .root = root,
                 .count = count,
                 .input = input,
                 .output = rank() == root ? output : nullptr},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::Gather(const void* input, void* output, size_t count,
                                                DType dtype, int root, ddp::Stream stream) {
  return Submit({.kind = OpKind::kGather,
                 .dtype = dtype,
                 .root = root,
                 .count = count,
                 .input = input,
                 .output = rank() == root ? output : nullptr},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::Scatter(const void* input, void* output, size_t count,
                                                 DType dtype, int root, ddp::Stream stream) {
  return Submit({.kind = OpKind::kScatter,
                 .dtype = dtype,
                 .root = root,
                 .count = count,
                 .input = rank() == root ? input : nullptr,
                 .output = output},
                stream);
}

std::unique_ptr<Work> GroupCommunicator::AllToAll(const void* input, void* output, size_t count,
                                                  DType dtype, ddp::Stream stream) {
  return Submit(
      {.kind = OpKind::kAllToAll, .dtype = dtype, .count = count, .input = input, .output = output},
      stream);
}

std::unique_ptr<Work> GroupCommunicator::SendReceive(const void* input, int destination,
                                                     void* output, int source, size_t count,
                                                     DType dtype, ddp::Stream stream) {
  return Submit({.kind = OpKind::kSendReceive,
                 .dtype = dtype,
                 .destination = destination,
                 .source = source,
                 .count = count,
                 .input = destination < 0 ? nullptr : input,
                 .output = source < 0 ? nullptr : output},
                stream);
}

}  // namespace ddp::internal
