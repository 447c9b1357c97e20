#include "worker_runtime/gpu/kernel.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace ddp::internal {

namespace {

// What tools/gpu_kernels compiles for, beside what is here, and the driver that LoadCuda asks for.
std::string WhatIsNeeded(const CudaApi& cuda) {
  std::string needs =
      "they need a GPU of compute capability 8.0 or newer (A100, RTX 30 and later) and an NVIDIA "
      "driver for CUDA 11.4 or newer";
  int version = 0;
  if (cuda.cuDriverGetVersion(&version) == kCudaSuccess) {
    absl::StrAppend(&needs, "; this driver is for CUDA ", version / 1000, ".", version % 1000 / 10);
  }
  return needs;
}

}  // namespace

LaunchShape ShapeFor(int64_t count) {
  const LaunchShape shape;
  // 2,048 blocks of 256 are more threads than any GPU runs at once (H200: 132 SMs x 2,048).
  const int64_t wanted = count / shape.threads_x + (count % shape.threads_x != 0);
  return {.blocks = static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, 2048))};
}

absl::StatusOr<OwnedModule> LoadPtx(const CudaApi& cuda, const char* name, const char* ptx) {
  CudaModule module = nullptr;
  const absl::Status status =
      CudaStatus(cuda, "cuModuleLoadData", cuda.cuModuleLoadData(&module, ptx));
  if (status.ok()) return OwnedModule(module, {&cuda});
  std::string message = absl::StrCat("load the kernels of ", name, ": ", status.message());
  if (absl::IsFailedPrecondition(status)) absl::StrAppend(&message, "; ", WhatIsNeeded(cuda));
  return absl::Status(status.code(), message);
}

absl::StatusOr<CudaFunction> FindFunction(const CudaApi& cuda, CudaModule module,
                                          const char* name) {
  CudaFunction function = nullptr;
  const absl::Status status =
      CudaStatus(cuda, "cuModuleGetFunction", cuda.cuModuleGetFunction(&function, module, name));
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("find the kernel ", name, ": ", status.message()));
  }
  return function;
}

}  // namespace ddp::internal
