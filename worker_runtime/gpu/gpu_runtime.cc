#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddp::internal {

// Never destroyed: other static objects may still use the GPU at the process's end.
const absl::StatusOr<LoadedCuda>& Cuda() {
  static const auto* const cuda = new absl::StatusOr<LoadedCuda>(LoadCuda());
  return *cuda;
}

const absl::StatusOr<LoadedNccl>& Nccl() {
  static const auto* const nccl = new absl::StatusOr<LoadedNccl>(LoadNccl());
  return *nccl;
}

absl::StatusOr<std::unique_ptr<Device>> OpenGpuOf(int local_rank) {
  const absl::StatusOr<LoadedCuda>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  const absl::StatusOr<int> count = CountGpus(cuda->api);
  if (!count.ok()) return count.status();
  const absl::StatusOr<int> ordinal = OrdinalFor(local_rank, *count);
  if (!ordinal.ok()) return ordinal.status();
  return Device::Open(cuda->api, *ordinal);
}

}  // namespace ddp::internal
