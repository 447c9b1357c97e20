// Hashes of tensors on a communicator's GPU.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_HASH_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_HASH_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// `device` outlives it, `timeout` bounds each call. Fails when the driver cannot compile or load
// the kernels.
absl::StatusOr<std::unique_ptr<TensorHash>> MakeDeviceHash(const Device& device,
                                                           std::chrono::milliseconds timeout);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_HASH_H_
