#include "worker_runtime/comm/nccl/op_memory.h"

#include <tuple>
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

absl::Status OnGpu(const Op& op, const char* name) {
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(op), ": ", name,
      " is memory of a GPU; this communicator, host(), takes host memory, the one that "
      "it belongs to takes device memory"));
}

}  // namespace

absl::Status CheckDeviceMemory(const CudaApi& api, const Op& op, int rank, int world_size) {
  for (const Piece& piece : op.pieces) {
    const absl::Status status =
        CheckDeviceMemory(api, WithoutPieces(op, piece.data, piece.count), rank, world_size);
    if (!status.ok()) return status;
  }
  if (!op.pieces.empty()) return absl::OkStatus();
  const Extent extent = ExtentOf(op, rank, world_size);
  const size_t input = extent.input * SizeOf(op.dtype);
  const bool is_one = op.input == op.output && extent.input == extent.output;
  const size_t output = is_one ? 0 : extent.output * SizeOf(op.dtype);
  for (const auto& [name, memory, bytes] :
       {std::tuple("input", op.input, input),
        std::tuple("output", static_cast<const void*>(op.output), output)}) {
    if (bytes == 0) continue;  // not used by this rank, or checked already
    const auto address = reinterpret_cast<CudaPointer>(memory);
    if (address % SizeOf(op.dtype) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(op), ": the ", name,
                                                     " is not aligned to its elements of ",
                                                     SizeOf(op.dtype), " bytes"));
    }
    for (const CudaPointer part : {address, address + bytes - 1}) {
      unsigned type = 0;
      const CudaResult result =
          api.cuPointerGetAttribute(&type, kCudaPointerAttributeMemoryType, part);
      if (result == kCudaSuccess && type == kCudaMemoryTypeDevice) continue;
      // Other results tell of a device in trouble, not of memory that the driver does not know.
      if (result != kCudaSuccess && result != kCudaErrorInvalidValue) {
        return absl::InternalError(CudaStatus(api, "cuPointerGetAttribute", result).message());
      }
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(op), ": the ", part == address ? "" : "end of the ", name,
                       " is not memory of a GPU; this communicator takes device memory, its host() "
                       "takes host memory"));
    }
  }
  return absl::OkStatus();
}

std::function<absl::Status(const Op& op)> HostMemoryCheck(const Device& device) {
  return [&device](const Op& op) -> absl::Status {
    if (op.count == 0) return absl::OkStatus();
    const CurrentDevice current(device);
    for (const Piece& piece : op.pieces) {
      if (piece.count == 0 || !IsOnGpuAlone(device.api(), piece.data)) continue;
      return OnGpu(op, "a piece");
    }
    for (const auto& [name, memory] :
         {std::pair<const char*, const void*>("the input", op.input),
          std::pair<const char*, const void*>("the output", op.output)}) {
      if (memory == nullptr || !IsOnGpuAlone(device.api(), memory)) continue;
      return OnGpu(op, name);
    }
    return absl::OkStatus();
  };
}

}  // namespace ddp::internal
