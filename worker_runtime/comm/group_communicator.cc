#include "worker_runtime/comm/group_communicator.h"

namespace ddp::internal {

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

}  // namespace ddp::internal
