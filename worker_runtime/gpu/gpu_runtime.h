// What this process needs to use its GPU: driver, NCCL, device.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_GPU_RUNTIME_H_
#define DDPRUN_WORKER_RUNTIME_GPU_GPU_RUNTIME_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/nccl_api.h"

namespace ddp::internal {

// The libraries, opened by the first call and kept until the process ends: neither can be closed.
// Nothing else in this library opens them, so a process that does not ask for a GPU never does.
const absl::StatusOr<LoadedCuda>& Cuda();
const absl::StatusOr<LoadedNccl>& Nccl();

// Opens the GPU of a rank. Errors say what is missing and what to do.
absl::StatusOr<std::unique_ptr<Device>> OpenGpuOf(int local_rank);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_GPU_RUNTIME_H_
