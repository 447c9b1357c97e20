// A program's own work on its GPU: memory, streams, copies and kernels of PTX text, through the
// CUDA driver that the library opens at run time. A program that uses it needs no CUDA header,
// links no library of CUDA's and starts on machines without a GPU. What CUDA's own headers make may
// be mixed with it: streams, events and addresses are the driver's.
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

// A kernel as the driver knows it.
struct FoundKernel {
  const CudaApi* cuda = nullptr;
  void* function = nullptr;
  std::string call;  // for errors
};
}  // namespace internal

// What the driver hands out, freed when the owner goes, with the context current that it was made
// in. REQUIRES: what was put on streams with it is done (Synchronize()): the driver may wait for
// the device when it frees memory, for as long as that takes, but promises nothing. Its errors are
// ignored: nobody is left to be told, and after a device's error every call fails.
template <void (*kFree)(const internal::CudaApi&, void*)>
using GpuObject = std::unique_ptr<void, internal::GpuDeleter<kFree>>;
// An address in the GPU's memory (a CUdeviceptr): not to be dereferenced on the host.
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

  // Queues it on the stream. REQUIRES: Gpu::FindKernel found it.
  absl::Status Launch(Stream stream, LaunchShape shape,
                      std::type_identity_t<Arguments>... arguments) const;

 private:
  friend class Gpu;
  internal::FoundKernel found_;
};

// The driver's calls on one GPU, whose context is current on the calling thread. A handle: copies
// are the same GPU. What fails is said in the driver's words, behind what it was for where a call
// takes that (`what`); the code is ResourceExhausted for memory, FailedPrecondition for a driver or
// device that cannot do it, InvalidArgument for a wrong value, Internal otherwise. An error of what
// was queued earlier may be the result of any later call.
class Gpu {
 public:
  // The GPU of this ordinal, ProcessGroup::gpu(). Its primary context, which the group and the
  // frameworks use too, becomes current on this thread and lives as long as the process. Opens the
  // driver if nothing has. Errors: NotFound without a driver; FailedPrecondition with one that
  // cannot work; InvalidArgument for an ordinal that CUDA does not show.
  static absl::StatusOr<Gpu> Use(int ordinal);

  // On a table of the driver's functions, which it borrows; with Use() nobody needs it.
  explicit Gpu(const internal::CudaApi& cuda) : cuda_(&cuda) {}

  // 0 bytes are allocated as 1. The contents are undefined.
  absl::StatusOr<DeviceMemory> Allocate(absl::string_view what, size_t bytes) const;
  absl::StatusOr<PinnedMemory> AllocatePinned(absl::string_view what, size_t bytes) const;
  // Does not wait for the default stream, nor that for it.
  absl::StatusOr<OwnedStream> MakeStream(absl::string_view what) const;
  // Without a time.
  absl::StatusOr<OwnedEvent> MakeEvent(absl::string_view what) const;

  // Compiles PTX text, ended by NUL, for this GPU and loads it. `name` is for errors.
  absl::StatusOr<OwnedModule> LoadPtx(const char* name, const char* ptx) const;
  // Sets `kernel` to the module's `extern "C" __global__` function of this name. The signature is
  // not checked: the driver does not tell it.
  template <typename Signature>
  absl::Status FindKernel(const OwnedModule& module, const char* name,
                          Kernel<Signature>* kernel) const {
    return Find(module, name, &kernel->found_);
  }

  // Queued on the stream: the host's memory stays, and stays as it is, until the stream gets there.
  // From and to memory that is not pinned the call itself may wait for that.
  absl::Status CopyToDevice(absl::string_view what, void* device, const void* host, size_t bytes,
                            Stream stream) const;
  absl::Status CopyToHost(absl::string_view what, void* host, const void* device, size_t bytes,
                          Stream stream) const;
  // Every byte becomes `value`.
  absl::Status Fill(absl::string_view what, void* device, unsigned char value, size_t bytes,
                    Stream stream) const;
  // Notes what is on the stream now; an event that was recorded before forgets that.
  absl::Status Record(const OwnedEvent& event, Stream stream) const;

  // Waits, without a deadline, until what the event noted is done; at once for one never recorded.
  absl::Status Synchronize(absl::string_view what, const OwnedEvent& event) const;
  // Waits, without a deadline, until all that is queued on the stream is done.
  absl::Status Synchronize(absl::string_view what, Stream stream) const;
  // Whether something queued on the stream is not done yet; false also after a device's error.
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
