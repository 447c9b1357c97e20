#include "ddp/gpu.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddp {
namespace internal {

void FreeDeviceMemory(const CudaApi& cuda, void* memory) { cuda.cuMemFree(AddressOf(memory)); }
void FreePinnedMemory(const CudaApi& cuda, void* memory) { cuda.cuMemFreeHost(memory); }
void DestroyStream(const CudaApi& cuda, void* stream) {
  cuda.cuStreamDestroy(static_cast<CudaStream>(stream));
}
void DestroyEvent(const CudaApi& cuda, void* event) {
  cuda.cuEventDestroy(static_cast<CudaEvent>(event));
}
void UnloadModule(const CudaApi& cuda, void* module) {
  cuda.cuModuleUnload(static_cast<CudaModule>(module));
}

absl::Status Launch(const FoundKernel& kernel, Stream stream, LaunchShape shape, void** arguments) {
  DDP_CHECK(kernel.cuda != nullptr);
  return CudaStatus(
      *kernel.cuda, kernel.call.c_str(),
      kernel.cuda->cuLaunchKernel(static_cast<CudaFunction>(kernel.function), shape.blocks, 1, 1,
                                  shape.threads_x, shape.threads_y, 1, /*shared_bytes=*/0,
                                  static_cast<CudaStream>(stream), arguments, /*extra=*/nullptr));
}

}  // namespace internal

using namespace internal;  // NOLINT: the driver's table, of which this file is the face

namespace {

absl::Status For(absl::string_view what, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

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

absl::StatusOr<Gpu> Gpu::Use(int ordinal) {
  const absl::StatusOr<LoadedCuda>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  const CudaApi& api = cuda->api;
  const absl::StatusOr<int> count = CountGpus(api);
  if (!count.ok()) return count.status();
  if (ordinal < 0 || ordinal >= *count) {
    return absl::InvalidArgumentError(
        absl::StrCat("use GPU ", ordinal, ": CUDA shows ", *count, ", counted from 0"));
  }
  CudaDevice device = 0;
  CudaContext context = nullptr;
  CudaResult result = api.cuDeviceGet(&device, ordinal);
  if (result == kCudaSuccess) result = api.cuDevicePrimaryCtxRetain(&context, device);
  if (result == kCudaSuccess) result = api.cuCtxSetCurrent(context);
  if (result != kCudaSuccess) {
    return CudaStatus(api, absl::StrCat("make GPU ", ordinal, " current").c_str(), result);
  }
  return Gpu(api);
}

absl::StatusOr<DeviceMemory> Gpu::Allocate(absl::string_view what, size_t bytes) const {
  CudaPointer pointer = 0;
  const CudaResult result = cuda_->cuMemAlloc(&pointer, std::max<size_t>(bytes, 1));
  absl::Status status = For(absl::StrCat(what, ", ", bytes, " bytes on the GPU"),
                            CudaStatus(*cuda_, "cuMemAlloc", result));
  if (!status.ok()) return status;
  return DeviceMemory(reinterpret_cast<void*>(pointer), {cuda_});
}

absl::StatusOr<PinnedMemory> Gpu::AllocatePinned(absl::string_view what, size_t bytes) const {
  void* pointer = nullptr;
  const CudaResult result = cuda_->cuMemAllocHost(&pointer, std::max<size_t>(bytes, 1));
  absl::Status status = For(absl::StrCat(what, ", ", bytes, " bytes of pinned memory"),
                            CudaStatus(*cuda_, "cuMemAllocHost", result));
  if (!status.ok()) return status;
  return PinnedMemory(pointer, {cuda_});
}

absl::StatusOr<OwnedStream> Gpu::MakeStream(absl::string_view what) const {
  CudaStream stream = nullptr;
  const CudaResult result =
      cuda_->cuStreamCreateWithPriority(&stream, kCudaStreamNonBlocking, /*priority=*/0);
  absl::Status status = For(what, CudaStatus(*cuda_, "cuStreamCreateWithPriority", result));
  if (!status.ok()) return status;
  return OwnedStream(stream, {cuda_});
}

absl::StatusOr<OwnedEvent> Gpu::MakeEvent(absl::string_view what) const {
  CudaEvent event = nullptr;
  const CudaResult result = cuda_->cuEventCreate(&event, kCudaEventDisableTiming);
  absl::Status status = For(what, CudaStatus(*cuda_, "cuEventCreate", result));
  if (!status.ok()) return status;
  return OwnedEvent(event, {cuda_});
}

absl::StatusOr<OwnedModule> Gpu::LoadPtx(const char* name, const char* ptx) const {
  CudaModule module = nullptr;
  const absl::Status status =
      CudaStatus(*cuda_, "cuModuleLoadData", cuda_->cuModuleLoadData(&module, ptx));
  if (status.ok()) return OwnedModule(module, {cuda_});
  std::string message = absl::StrCat("load the kernels of ", name, ": ", status.message());
  if (absl::IsFailedPrecondition(status)) absl::StrAppend(&message, "; ", WhatIsNeeded(*cuda_));
  return absl::Status(status.code(), message);
}

absl::Status Gpu::Find(const OwnedModule& module, const char* name, FoundKernel* kernel) const {
  CudaFunction function = nullptr;
  const CudaResult result =
      cuda_->cuModuleGetFunction(&function, static_cast<CudaModule>(module.get()), name);
  absl::Status status = For(absl::StrCat("find the kernel ", name),
                            CudaStatus(*cuda_, "cuModuleGetFunction", result));
  if (!status.ok()) return status;
  *kernel = {.cuda = cuda_, .function = function, .call = absl::StrCat("cuLaunchKernel of ", name)};
  return status;
}

absl::Status Gpu::CopyToDevice(absl::string_view what, void* device, const void* host, size_t bytes,
                               Stream stream) const {
  const CudaResult result =
      cuda_->cuMemcpyHtoDAsync(AddressOf(device), host, bytes, static_cast<CudaStream>(stream));
  return For(what, CudaStatus(*cuda_, "cuMemcpyHtoDAsync", result));
}

absl::Status Gpu::CopyToHost(absl::string_view what, void* host, const void* device, size_t bytes,
                             Stream stream) const {
  const CudaResult result =
      cuda_->cuMemcpyDtoHAsync(host, AddressOf(device), bytes, static_cast<CudaStream>(stream));
  return For(what, CudaStatus(*cuda_, "cuMemcpyDtoHAsync", result));
}

absl::Status Gpu::Fill(absl::string_view what, void* device, unsigned char value, size_t bytes,
                       Stream stream) const {
  const CudaResult result =
      cuda_->cuMemsetD8Async(AddressOf(device), value, bytes, static_cast<CudaStream>(stream));
  return For(what, CudaStatus(*cuda_, "cuMemsetD8Async", result));
}

absl::Status Gpu::Record(const OwnedEvent& event, Stream stream) const {
  return CudaStatus(
      *cuda_, "cuEventRecord",
      cuda_->cuEventRecord(static_cast<CudaEvent>(event.get()), static_cast<CudaStream>(stream)));
}

absl::Status Gpu::Synchronize(absl::string_view what, const OwnedEvent& event) const {
  const CudaResult result = cuda_->cuEventSynchronize(static_cast<CudaEvent>(event.get()));
  return For(what, CudaStatus(*cuda_, "cuEventSynchronize", result));
}

absl::Status Gpu::Synchronize(absl::string_view what, Stream stream) const {
  const CudaResult result = cuda_->cuStreamSynchronize(static_cast<CudaStream>(stream));
  return For(what, CudaStatus(*cuda_, "cuStreamSynchronize", result));
}

bool Gpu::IsBusy(Stream stream) const {
  return cuda_->cuStreamQuery(static_cast<CudaStream>(stream)) == kCudaErrorNotReady;
}

}  // namespace ddp
