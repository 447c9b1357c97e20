// The name of a device that no other device has.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_DEVICE_UUID_H_
#define DDPRUN_WORKER_RUNTIME_GPU_DEVICE_UUID_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// "GPU-8b0d19a4-...", or "MIG-..." for a slice of a GPU, as nvidia-smi -L prints it and
// CUDA_VISIBLE_DEVICES takes it. The driver gives the 16 bytes alone: a slice shows by having
// others than its GPU, and by its name ("NVIDIA H200 MIG 1g.18gb"). REQUIRES: cuInit succeeded.
absl::StatusOr<std::string> DeviceUuid(const CudaApi& api, CudaDevice device);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_DEVICE_UUID_H_
