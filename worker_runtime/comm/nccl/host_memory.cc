#include "worker_runtime/comm/nccl/host_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

// What the driver does not know is the host's.
bool IsOnGpuAlone(const CudaApi& api, const void* memory) {
  const auto pointer = reinterpret_cast<CudaPointer>(memory);
  unsigned type = 0;
  if (api.cuPointerGetAttribute(&type, kCudaPointerAttributeMemoryType, pointer) != kCudaSuccess) {
    return false;
  }
  if (type != kCudaMemoryTypeDevice) return false;
  unsigned is_managed = 0;
  const CudaResult result =
      api.cuPointerGetAttribute(&is_managed, kCudaPointerAttributeIsManaged, pointer);
  return result != kCudaSuccess || is_managed == 0;
}

}  // namespace

std::function<absl::Status(const Op& op)> HostMemoryCheck(const Device& device) {
  return [&device](const Op& op) -> absl::Status {
    if (op.count == 0) return absl::OkStatus();
    const CurrentDevice current(device);
    for (const auto& [name, memory] : {std::pair<const char*, const void*>("input", op.input),
                                       std::pair<const char*, const void*>("output", op.output)}) {
      if (memory == nullptr || !IsOnGpuAlone(device.api(), memory)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(op), ": the ", name,
                       " is memory of a GPU; this communicator, host(), takes host memory, the one "
                       "that it belongs to takes device memory"));
    }
    return absl::OkStatus();
  };
}

}  // namespace ddp::internal
