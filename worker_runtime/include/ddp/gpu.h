// A program's own work on its GPU: memory, streams, copies and kernels from PTX text. It goes
// through the CUDA driver, which the library opens at run time. A program that uses it needs no
// CUDA header, links no CUDA library and starts on machines without a GPU. Streams, events and
// addresses are the driver's. So you may mix them with those of CUDA's own headers.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_GPU_H_
#define DDPRUN_WORKER_RUNTIME_DDP_GPU_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddp/communicator.h"

namespace ddp {

namespace internal {
struct CudaApi;

void FreeDeviceMemory(const CudaApi& cuda, void* memory);
void FreePinnedMemory(const CudaApi& cuda, void* memory);
void DestroyStream(const CudaApi& cuda, void* stream);
void DestroyEvent(const CudaApi& cuda, void* event);
void UnloadModule(const CudaApi& cuda, void* module);

template <void (*kFree)(const CudaApi&, void*)>
struct GpuDeleter {
  const CudaApi* cuda = nullptr;
  void operator()(void* object) const { kFree(*cuda, object); }
};

// A kernel in the driver.
struct FoundKernel {
  const CudaApi* cuda = nullptr;
  void* function = nullptr;
  std::string call;  // for errors
};
}  // namespace internal

// An object of the driver, freed with its owner. The context in which it was made is then current.
// REQUIRES: what was put on streams with it is done (Synchronize()). The driver may wait for the
// device when it frees memory, without a limit, but it does not promise to wait. Errors of the free
// are ignored: the owner is gone, and after a device's error every call fails.
template <void (*kFree)(const internal::CudaApi&, void*)>
using GpuObject = std::unique_ptr<void, internal::GpuDeleter<kFree>>;
// An address in the GPU's memory (a CUdeviceptr). Do not dereference it on the host.
using DeviceMemory = GpuObject<internal::FreeDeviceMemory>;
// Memory of the host that the GPU copies from and to without a stop.
using PinnedMemory = GpuObject<internal::FreePinnedMemory>;
using OwnedStream = GpuObject<internal::DestroyStream>;  // a CUstream, for a `Stream`
using OwnedEvent = GpuObject<internal::DestroyEvent>;    // a CUevent
using OwnedModule = GpuObject<internal::UnloadModule>;   // a CUmodule

// How many blocks, and threads in each.
struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads_x = 256;
  unsigned threads_y = 1;
};

// Returns the shape for a kernel that strides over `count` elements by its grid: enough blocks to
// fill any GPU, at least one.
LaunchShape ShapeFor(int64_t count);

// A function of a module that stays loaded. Its signature is the kernel's own, so a launch passes
// what the kernel reads. The driver sees only addresses.
template <typename Signature>
class Kernel;

template <typename... Arguments>
class Kernel<void(Arguments...)> {
 public:
  Kernel() = default;

  // Queues it on the stream. REQUIRES: Gpu::FindKernel found it.
  absl::Status Launch(Stream stream, LaunchShape shape,
                      std::type_identity_t<Arguments>... arguments) const;

 private:
  friend class Gpu;
  internal::FoundKernel found_;
};

// The driver's calls on one GPU, with its context current on the calling thread. This is a handle:
// copies are the same GPU. Errors have the driver's text, after the purpose if the call takes one
// (`what`). The code is:
// - ResourceExhausted for memory;
// - FailedPrecondition for a driver or device that cannot do it;
// - InvalidArgument for a wrong value;
// - Internal otherwise.
//
// An error of work that was queued earlier may be the result of any later call.
class Gpu {
 public:
  // The GPU of this ordinal, as ProcessGroup::gpu() gives it. Its primary context, which the group
  // and the frameworks also use, becomes current on this thread. It lives as long as the process.
  // The call opens the driver if it is not open. Errors: NotFound without a driver.
  // FailedPrecondition if the driver cannot work. InvalidArgument for an ordinal that CUDA does not
  // show.
  static absl::StatusOr<Gpu> Use(int ordinal);

  // Uses a table of the driver's functions, which it borrows. With Use() it is not needed.
  explicit Gpu(const internal::CudaApi& cuda) : cuda_(&cuda) {}

  // Allocates memory, 1 byte for 0. The contents are undefined.
  absl::StatusOr<DeviceMemory> Allocate(absl::string_view what, size_t bytes) const;
  absl::StatusOr<PinnedMemory> AllocatePinned(absl::string_view what, size_t bytes) const;
  // Makes a stream. It and the default stream do not wait for each other.
  absl::StatusOr<OwnedStream> MakeStream(absl::string_view what) const;
  // Makes an event without a time.
  absl::StatusOr<OwnedEvent> MakeEvent(absl::string_view what) const;

  // Compiles PTX text, ended by NUL, for this GPU and loads it. `name` is for errors.
  absl::StatusOr<OwnedModule> LoadPtx(const char* name, const char* ptx) const;
  // Sets `kernel` to the module's `extern "C" __global__` function of this name. The signature is
  // not checked, because the driver does not have it.
  template <typename Signature>
  absl::Status FindKernel(const OwnedModule& module, const char* name,
                          Kernel<Signature>* kernel) const {
    return Find(module, name, &kernel->found_);
  }

  // Queues the copy on the stream. The host's memory must stay, unchanged, until the stream has
  // made the copy. For memory that is not pinned the call itself may wait for that.
  absl::Status CopyToDevice(absl::string_view what, void* device, const void* host, size_t bytes,
                            Stream stream) const;
  absl::Status CopyToHost(absl::string_view what, void* host, const void* device, size_t bytes,
                          Stream stream) const;
  // Sets every byte to `value`.
  absl::Status Fill(absl::string_view what, void* device, unsigned char value, size_t bytes,
                    Stream stream) const;
  // Notes what is on the stream now. This replaces what the event noted before.
  absl::Status Record(const OwnedEvent& event, Stream stream) const;

  // Waits, without a deadline, until what the event noted is done. It returns at once if the event
  // was never recorded.
  absl::Status Synchronize(absl::string_view what, const OwnedEvent& event) const;
  // Waits, without a deadline, until all work that is queued on the stream is done.
  absl::Status Synchronize(absl::string_view what, Stream stream) const;
  // Whether work queued on the stream is not done yet. False also after a device's error.
  bool IsBusy(Stream stream) const;

 private:
  absl::Status Find(const OwnedModule& module, const char* name,
                    internal::FoundKernel* kernel) const;

  const internal::CudaApi* cuda_;
};

namespace internal {
absl::Status Launch(const FoundKernel& kernel, Stream stream, LaunchShape shape, void** arguments);
}  // namespace internal

template <typename... Arguments>
absl::Status Kernel<void(Arguments...)>::Launch(
    Stream stream, LaunchShape shape, std::type_identity_t<Arguments>... arguments) const {
  void* addresses[] = {&arguments..., nullptr};
  return internal::Launch(found_, stream, shape, addresses);
}

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_GPU_H_
