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
      if (op.count != 0 && op.output != op.input) std::memmove(op.output, op.input, op.bytes());
      return absl::OkStatus();
    case OpKind::kAllocate: {
      auto buffer = AllocateHeapBuffer(op.count);
      if (!buffer.ok()) return buffer.status();
      *static_cast<std::unique_ptr<Buffer>*>(op.output) = std::move(*buffer);
      return absl::OkStatus();
    }
    case OpKind::kSendReceive:
    case OpKind::kReplay:
      break;  // of nccl alone: they do not come here
  }
  return absl::OkStatus();
}

}  // namespace ddp::internal
