// Sums of arrays on the GPU, for DataParallel's gradients.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_SUMS_H_
#define DDPRUN_WORKER_RUNTIME_GPU_SUMS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/dtype.h"
#include "ddp/gpu.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// Belongs to the context in which it was loaded, which is current at every call.
class Sums {
 public:
  // Borrows `cuda`. Fails when the driver cannot compile or load the kernels.
  static absl::StatusOr<std::unique_ptr<Sums>> Load(const CudaApi& cuda);

  // Queues sum[i] += inputs[i], += inputs[stride + i], ... for `input_count` inputs of `count`
  // elements, of which each begins `stride` elements behind the one before it. As the CPU's kernels
  // add: in that order, rounded once. Device memory, aligned to the type.
  absl::Status Add(DType type, void* sum, const void* inputs, int64_t input_count, int64_t stride,
                   int64_t count, CudaStream stream) const;

 private:
  // The elements are of another type for each kernel; the driver sees addresses.
  using SumKernel = Kernel<void(void*, const void*, int64_t, int64_t, int64_t)>;
  static constexpr size_t kTypes = static_cast<size_t>(DType::kInt8) + 1;

  explicit Sums(OwnedModule module) : module_(std::move(module)) {}

  OwnedModule module_;
  std::array<SumKernel, kTypes> kernels_;  // by DType
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_SUMS_H_
