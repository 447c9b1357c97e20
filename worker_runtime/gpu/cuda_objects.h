// What the driver hands out, owned: freed when the owner goes, with the context current that it was
// made in.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_CUDA_OBJECTS_H_
#define DDPRUN_WORKER_RUNTIME_GPU_CUDA_OBJECTS_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// Results are ignored: nobody is left to be told, and after a device's error every call fails.
struct CudaDeleter {
  const CudaApi* cuda = nullptr;
  void operator()(CudaStream stream) const { cuda->cuStreamDestroy(stream); }
  void operator()(CudaEvent event) const { cuda->cuEventDestroy(event); }
  void operator()(CudaModule module) const { cuda->cuModuleUnload(module); }
};
struct CudaMemoryDeleter {
  const CudaApi* cuda = nullptr;
  void operator()(void* pointer) const { cuda->cuMemFree(reinterpret_cast<CudaPointer>(pointer)); }
};
struct CudaHostMemoryDeleter {
  const CudaApi* cuda = nullptr;
  void operator()(void* pointer) const { cuda->cuMemFreeHost(pointer); }
};

using OwnedStream = std::unique_ptr<CudaStreamTag, CudaDeleter>;
using OwnedEvent = std::unique_ptr<CudaEventTag, CudaDeleter>;
using OwnedModule = std::unique_ptr<CudaModuleTag, CudaDeleter>;
// An address in the GPU's memory: not to be dereferenced here.
using DeviceMemory = std::unique_ptr<void, CudaMemoryDeleter>;
// Memory of the host that the GPU copies from and to without a stop.
using PinnedMemory = std::unique_ptr<void, CudaHostMemoryDeleter>;

inline CudaPointer AddressOf(const void* device) { return reinterpret_cast<CudaPointer>(device); }

// Each needs a current context, borrows `cuda` for the life of the result, and fails with the
// driver's words behind `what` it was for. 0 bytes are allocated as 1.
absl::StatusOr<DeviceMemory> AllocateDevice(const CudaApi& cuda, absl::string_view what,
                                            size_t bytes);
absl::StatusOr<PinnedMemory> AllocatePinned(const CudaApi& cuda, absl::string_view what,
                                            size_t bytes);
// Does not wait for the default stream.
absl::StatusOr<OwnedStream> MakeStream(const CudaApi& cuda, absl::string_view what, int priority);
// Without a time.
absl::StatusOr<OwnedEvent> MakeEvent(const CudaApi& cuda, absl::string_view what);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_CUDA_OBJECTS_H_
