// Casts between float32 and the 16-bit types on the GPU, for the hooks that halve the bytes on the
// wire.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_CASTS_H_
#define DDPRUN_WORKER_RUNTIME_GPU_CASTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/dtype.h"
#include "ddp/gpu.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// Belongs to the context in which it was loaded, which is current at every call. Views may start at
// any element of their type.
class Casts {
 public:
  // Borrows `cuda`. Fails when the driver cannot compile or load the kernels.
  static absl::StatusOr<std::unique_ptr<Casts>> Load(const CudaApi& cuda);

  // Queues output[i] = round(input[i] * scale), to nearest even. Device memory; the two do not
  // overlap. REQUIRES: `type` is float16 or bfloat16; count >= 0.
  absl::Status Narrow(DType type, const float* input, uint16_t* output, int64_t count, float scale,
                      CudaStream stream) const;
  // Queues output[i] = input[i]; otherwise as above.
  absl::Status Widen(DType type, const uint16_t* input, float* output, int64_t count,
                     CudaStream stream) const;

 private:
  using NarrowKernel = Kernel<void(const float*, uint16_t*, int64_t, float)>;
  using WidenKernel = Kernel<void(const uint16_t*, float*, int64_t)>;

  explicit Casts(OwnedModule module) : module_(std::move(module)) {}

  OwnedModule module_;
  NarrowKernel to_float16_, to_bfloat16_;
  WidenKernel from_float16_, from_bfloat16_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_CASTS_H_
