#include "worker_runtime/gpu/cuda_objects.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

absl::Status For(absl::string_view what, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace

absl::StatusOr<DeviceMemory> AllocateDevice(const CudaApi& cuda, absl::string_view what,
                                            size_t bytes) {
  CudaPointer pointer = 0;
  absl::Status status =
      For(absl::StrCat(what, ", ", bytes, " bytes on the GPU"),
          CudaStatus(cuda, "cuMemAlloc", cuda.cuMemAlloc(&pointer, std::max<size_t>(bytes, 1))));
  if (!status.ok()) return status;
  return DeviceMemory(reinterpret_cast<void*>(pointer), {&cuda});
}

absl::StatusOr<PinnedMemory> AllocatePinned(const CudaApi& cuda, absl::string_view what,
                                            size_t bytes) {
  void* pointer = nullptr;
  absl::Status status = For(absl::StrCat(what, ", ", bytes, " bytes of pinned memory"),
                            CudaStatus(cuda, "cuMemAllocHost",
                                       cuda.cuMemAllocHost(&pointer, std::max<size_t>(bytes, 1))));
  if (!status.ok()) return status;
  return PinnedMemory(pointer, {&cuda});
}

absl::StatusOr<OwnedStream> MakeStream(const CudaApi& cuda, absl::string_view what, int priority) {
  CudaStream stream = nullptr;
  absl::Status status = For(
      what, CudaStatus(cuda, "cuStreamCreateWithPriority",
                       cuda.cuStreamCreateWithPriority(&stream, kCudaStreamNonBlocking, priority)));
  if (!status.ok()) return status;
  return OwnedStream(stream, {&cuda});
}

absl::StatusOr<OwnedEvent> MakeEvent(const CudaApi& cuda, absl::string_view what) {
  CudaEvent event = nullptr;
  absl::Status status = For(
      what, CudaStatus(cuda, "cuEventCreate", cuda.cuEventCreate(&event, kCudaEventDisableTiming)));
  if (!status.ok()) return status;
  return OwnedEvent(event, {&cuda});
}

}  // namespace ddp::internal
