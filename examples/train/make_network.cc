#include "examples/train/make_network.h"

#include "absl/strings/str_cat.h"
#include "examples/train/cpu_network.h"
#include "examples/train/gpu/cublas.h"
#include "examples/train/gpu/cuda_network.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace train {
namespace {

using ddp::internal::CudaApi;

// The primary context is the one that the group uses, too.
absl::Status UseGpu(const CudaApi& cuda, int ordinal) {
  ddp::internal::CudaDevice device = 0;
  ddp::internal::CudaContext context = nullptr;
  ddp::internal::CudaResult result = cuda.cuDeviceGet(&device, ordinal);
  if (result == ddp::internal::kCudaSuccess) {
    result = cuda.cuDevicePrimaryCtxRetain(&context, device);
  }
  if (result == ddp::internal::kCudaSuccess) result = cuda.cuCtxSetCurrent(context);
  return ddp::internal::CudaStatus(cuda, "make the GPU current", result);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const Options& options,
                                                     const ddp::ProcessGroup& group, int inputs) {
  if (group.gpu() < 0) {
    return std::make_unique<CpuNetwork>(inputs, options.hidden, options.seed);
  }
  // Never closed, as CUDA's own libraries.
  static const auto* const cublas = new absl::StatusOr<LoadedCublas>(LoadCublas());
  if (!cublas->ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(cublas->status().message(), "; --device cpu trains without"));
  }
  const CudaApi& cuda = ddp::internal::Cuda()->api;
  if (absl::Status status = UseGpu(cuda, group.gpu()); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<CudaNetwork>> network =
      CudaNetwork::Create(cuda, (*cublas)->api, inputs, options.hidden, options.seed);
  if (!network.ok()) return network.status();
  return std::unique_ptr<Network>(*std::move(network));
}

}  // namespace train
