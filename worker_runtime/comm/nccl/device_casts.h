// Casts by kernels on a GPU.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_CASTS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_CASTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// Fails when the driver cannot compile or load the kernels. REQUIRES: `type` is float16 or
// bfloat16; `device` outlives the result.
absl::StatusOr<std::unique_ptr<HalfCasts>> MakeDeviceCasts(const Device& device, DType type);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_CASTS_H_
