#include "tools/gpu_check_program/rank.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddprun::gpu_check {

using ddp::internal::AddressOf;
using ddp::internal::CudaPointer;
using ddp::internal::CudaResult;

void MustBeOk(const std::string& what, const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::string(status.message()).c_str());
  std::exit(EXIT_FAILURE);
}

void PrintValue(const std::string& name, double value) {
  std::printf("value %s %.9g\n", name.c_str(), value);
  std::fflush(stdout);
}

void PrintText(const std::string& name, const std::string& text) {
  std::printf("text %s %s\n", name.c_str(), text.c_str());
  std::fflush(stdout);
}

std::unique_ptr<ddp::ProcessGroup> JoinGroup(ddp::Backend backend) {
  auto group = ddp::ProcessGroup::FromEnv({.backend = backend,
                                           .timeout = std::chrono::seconds(120),
                                           .device = ddp::DeviceChoice::kCuda});
  MustBeOk("join the group", group.status());
  return *std::move(group);
}

Gpu::Gpu(int ordinal) : api_(ddp::internal::Cuda()->api) {
  ddp::internal::CudaDevice device = 0;
  ddp::internal::CudaContext context = nullptr;
  Check("cuDeviceGet", api_.cuDeviceGet(&device, ordinal));
  Check("cuDevicePrimaryCtxRetain", api_.cuDevicePrimaryCtxRetain(&context, device));
  Check("cuCtxSetCurrent", api_.cuCtxSetCurrent(context));
  Check("cuStreamCreateWithPriority",
        api_.cuStreamCreateWithPriority(&stream_, ddp::internal::kCudaStreamNonBlocking, 0));
}

void Gpu::Check(const char* call, CudaResult result) {
  MustBeOk("gpu", ddp::internal::CudaStatus(api_, call, result));
}

void* Gpu::Allocate(size_t bytes) {
  CudaPointer pointer = 0;
  Check("cuMemAlloc", api_.cuMemAlloc(&pointer, bytes));
  return reinterpret_cast<void*>(pointer);
}

void Gpu::Copy(void* to, const void* from, size_t bytes) {
  Check("cuMemcpyDtoDAsync",
        api_.cuMemcpyDtoDAsync(AddressOf(to), AddressOf(from), bytes, stream_));
}

void Gpu::Write(void* to, const void* from, size_t bytes) {
  Check("cuMemcpyHtoDAsync", api_.cuMemcpyHtoDAsync(AddressOf(to), from, bytes, stream_));
  Synchronize();
}

void Gpu::Read(void* to, const void* from, size_t bytes) {
  Check("cuMemcpyDtoHAsync", api_.cuMemcpyDtoHAsync(to, AddressOf(from), bytes, stream_));
  Synchronize();
}

void Gpu::Synchronize() { Check("cuStreamSynchronize", api_.cuStreamSynchronize(stream_)); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace ddprun::gpu_check
