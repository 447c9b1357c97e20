// What a communicator for host memory is told of memory, where the process has a GPU as well.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_HOST_MEMORY_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_HOST_MEMORY_H_

#include <functional>

#include "absl/status/status.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// A check that refuses memory of a GPU, whose first byte the host could not read without a
// segmentation fault: InvalidArgument. Pinned and managed memory are the host's. `device` outlives
// the last call of the check.
std::function<absl::Status(const Op& op)> HostMemoryCheck(const Device& device);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_HOST_MEMORY_H_
