// Kernels of embedded PTX: loaded, found and launched through the driver.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_KERNEL_H_
#define DDPRUN_WORKER_RUNTIME_GPU_KERNEL_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/cuda_objects.h"

namespace ddp::internal {

// How many blocks, and threads in each.
struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads_x = 256;
  unsigned threads_y = 1;
};

// For a kernel that strides over `count` elements by its grid: enough blocks to fill any GPU, at
// least one.
LaunchShape ShapeFor(int64_t count);

// A function of a module that stays loaded. Its signature is the kernel's own, so that a launch
// passes what the kernel reads: the driver sees only addresses.
template <typename Signature>
class Kernel;

template <typename... Arguments>
class Kernel<void(Arguments...)> {
 public:
  Kernel() = default;
  Kernel(const std::string& name, CudaFunction function)
      : call_("cuLaunchKernel of " + name), function_(function) {}

  // Queues it on the stream. REQUIRES: it was found; the stream's context is current.
  absl::Status Launch(const CudaApi& cuda, CudaStream stream, LaunchShape shape,
                      std::type_identity_t<Arguments>... arguments) const {
    void* parameters[] = {&arguments...};
    return CudaStatus(
        cuda, call_.c_str(),
        cuda.cuLaunchKernel(function_, shape.blocks, 1, 1, shape.threads_x, shape.threads_y, 1,
                            /*shared_bytes=*/0, stream, parameters, /*extra=*/nullptr));
  }

 private:
  std::string call_;
  CudaFunction function_ = nullptr;
};

// Compiles the text, which tools/gpu_kernels made, for the current context's device and loads it.
// `name` is for errors. Borrows `cuda` for the life of the result.
absl::StatusOr<OwnedModule> LoadPtx(const CudaApi& cuda, const char* name, const char* ptx);

absl::StatusOr<CudaFunction> FindFunction(const CudaApi& cuda, CudaModule module, const char* name);

template <typename Signature>
absl::Status FindKernel(const CudaApi& cuda, CudaModule module, const char* name,
                        Kernel<Signature>* kernel) {
  const absl::StatusOr<CudaFunction> function = FindFunction(cuda, module, name);
  if (function.ok()) *kernel = Kernel<Signature>(name, *function);
  return function.status();
}

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_KERNEL_H_
