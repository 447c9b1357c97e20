// Hashes of tensors on a communicator's GPU.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_HASH_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_HASH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/comm/nccl/launch_queue.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// Both outlive it. A call waits as long as the group's operations do. Fails when the driver cannot
// compile or load the kernels.
absl::StatusOr<std::unique_ptr<TensorHash>> MakeDeviceHash(const Device& device,
                                                           const LaunchQueue& queue);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_HASH_H_
