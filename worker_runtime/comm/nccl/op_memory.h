// Whether the memory of an operation is where its communicator can use it.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_OP_MEMORY_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_OP_MEMORY_H_

#include <functional>

#include "absl/status/status.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// For rank `rank` of the communicator on GPUs of `world_size` ranks: InvalidArgument for what is
// not memory of a GPU from its first byte to its last, or not aligned. Other errors are the
// driver's. REQUIRES: the device is current.
absl::Status CheckDeviceMemory(const CudaApi& api, const Op& op, int rank, int world_size);

// For the communicator of host memory in a process that has a GPU as well: a check that refuses
// memory of a GPU, whose first byte the host could not read without a segmentation fault:
// InvalidArgument. Pinned and managed memory are the host's. `device` outlives the last call of the
// check.
std::function<absl::Status(const Op& op)> HostMemoryCheck(const Device& device);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_OP_MEMORY_H_
