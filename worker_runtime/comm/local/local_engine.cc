#include "worker_runtime/comm/local/local_engine.h"

#include <cstring>
#include <memory>

#include "worker_runtime/comm/heap_buffer.h"

namespace ddp::internal {

absl::Status LocalEngine::Run(const Op& op) {
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kBarrier:
      return absl::OkStatus();
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kReduce:
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll:
      if (op.count != 0 && op.output != op.input) std::memmove(op.output, op.input, op.bytes());
      return absl::OkStatus();
    case OpKind::kAllocate: {
      auto buffer = AllocateHeapBuffer(op.count);
      if (!buffer.ok()) return buffer.status();
      *static_cast<std::unique_ptr<Buffer>*>(op.output) = std::move(*buffer);
      return absl::OkStatus();
    }
    case OpKind::kSendReceive:
      if (op.destination == 0 && op.count != 0) std::memmove(op.output, op.input, op.bytes());
      return absl::OkStatus();
    case OpKind::kReplay:
      break;  // of nccl alone: it does not come here
  }
  return absl::OkStatus();
}

}  // namespace ddp::internal
