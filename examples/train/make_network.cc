#include "examples/train/make_network.h"

#include "absl/strings/str_cat.h"
#include "ddp/gpu.h"
#include "examples/train/cpu_network.h"
#include "examples/train/gpu/cublas.h"
#include "examples/train/gpu/cuda_network.h"

namespace train {
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
  const absl::StatusOr<ddp::Gpu> gpu = ddp::Gpu::Use(group.gpu());
  if (!gpu.ok()) return gpu.status();
  absl::StatusOr<std::unique_ptr<CudaNetwork>> network =
      CudaNetwork::Create(*gpu, (*cublas)->api, inputs, options.hidden, options.seed);
  if (!network.ok()) return network.status();
  return std::unique_ptr<Network>(*std::move(network));
}

}  // namespace train
