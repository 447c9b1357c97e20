// The network on a GPU, by kernels of our own: mlp.cu.
#ifndef DDPRUN_BENCH_GPU_CUDA_DEVICE_H_
#define DDPRUN_BENCH_GPU_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "bench/device.h"
#include "ddp/gpu.h"

namespace ddprun::bench {

// With a stream of its own. Destroyed where the GPU's context is current.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const ddp::Gpu& gpu, const MlpShape& shape);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_GPU_CUDA_DEVICE_H_
