#include "tests/support/emulated_cuda.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

using namespace ddp::internal;  // NOLINT: a table of its functions

namespace {

EmulatedCuda* current = nullptr;

void* ToHost(CudaPointer pointer) { return reinterpret_cast<void*>(pointer); }

}  // namespace

struct EmulatedCudaFunctions {
  // A handle that nothing looks into.
  template <typename Handle>
  static CudaResult Make(const char* call, Handle* handle, size_t bytes = 1) {
    if (const CudaResult result = current->Call(call); result != kCudaSuccess) return result;
    void* memory = std::malloc(bytes);
    std::memset(memory, 0xff, bytes);  // not-a-numbers, far indices
    *handle = reinterpret_cast<Handle>(memory);
    ++current->live_;
    return kCudaSuccess;
  }
  template <typename Handle>
  static CudaResult Free(const char* call, Handle handle) {
    std::free(reinterpret_cast<void*>(handle));
    --current->live_;
    return current->Call(call);
  }
  static CudaResult Copy(const char* call, void* to, const void* from, size_t bytes) {
    if (const CudaResult result = current->Call(call); result != kCudaSuccess) return result;
    std::memcpy(to, from, bytes);
    return kCudaSuccess;
  }

  static CudaResult FindFunction(CudaFunction* function, CudaModule, const char* name) {
    constexpr CudaResult kNotFound = 500;
    if (const CudaResult result = current->Call("cuModuleGetFunction"); result != kCudaSuccess) {
      return result;
    }
    const auto found = current->kernels_.find(name);
    if (found == current->kernels_.end()) return kNotFound;
    if (PtxParameters(current->ptx_, name) != found->second.parameters) return kNotFound;
    *function = reinterpret_cast<CudaFunction>(&*found);
    return kCudaSuccess;
  }

  static CudaResult Launch(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                           CudaStream stream, void** parameters, void** extra) {
    const auto& [name, kernel] = *reinterpret_cast<EmulatedKernels::value_type*>(function);
    CudaResult result = current->Call("cuLaunchKernel");
    if (result == kCudaSuccess) result = current->Call(name);
    if (result != kCudaSuccess) return result;
    const unsigned long long threads = 1ull * block_x * block_y * block_z;
    // The driver's own limits.
    if (stream == nullptr || extra != nullptr || threads == 0 || threads > 1024 || grid_x == 0 ||
        grid_x > 0x7fffffff || grid_y != 1 || grid_z != 1) {
      return kCudaErrorInvalidValue;
    }
    RunEmulated(kernel, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, parameters);
    return kCudaSuccess;
  }

  static CudaApi Table() {
    CudaApi api{};
    api.cuGetErrorName = [](CudaResult, const char**) { return kCudaErrorInvalidValue; };
    api.cuDriverGetVersion = [](int* version) {
      *version = 12040;
      return kCudaSuccess;
    };
    api.cuGetErrorString = [](CudaResult, const char**) { return kCudaErrorInvalidValue; };
    api.cuMemAlloc = [](CudaPointer* p, size_t bytes) { return Make("cuMemAlloc", p, bytes); };
    api.cuMemFree = [](CudaPointer p) { return Free("cuMemFree", p); };
    api.cuMemAllocHost = [](void** p, size_t bytes) { return Make("cuMemAllocHost", p, bytes); };
    api.cuMemFreeHost = [](void* p) { return Free("cuMemFreeHost", p); };
    api.cuStreamCreateWithPriority = [](CudaStream* stream, unsigned, int) {
      return Make("cuStreamCreateWithPriority", stream);
    };
    api.cuStreamDestroy = [](CudaStream stream) { return Free("cuStreamDestroy", stream); };
    api.cuStreamQuery = [](CudaStream) { return current->Call("cuStreamQuery"); };
    api.cuStreamSynchronize = [](CudaStream) { return current->Call("cuStreamSynchronize"); };
    api.cuEventCreate = [](CudaEvent* event, unsigned) { return Make("cuEventCreate", event); };
    api.cuEventDestroy = [](CudaEvent event) { return Free("cuEventDestroy", event); };
    api.cuEventRecord = [](CudaEvent, CudaStream) { return current->Call("cuEventRecord"); };
    api.cuEventSynchronize = [](CudaEvent) { return current->Call("cuEventSynchronize"); };
    api.cuMemcpyHtoDAsync = [](CudaPointer to, const void* from, size_t bytes, CudaStream) {
      return Copy("cuMemcpyHtoDAsync", ToHost(to), from, bytes);
    };
    api.cuMemcpyDtoHAsync = [](void* to, CudaPointer from, size_t bytes, CudaStream) {
      return Copy("cuMemcpyDtoHAsync", to, ToHost(from), bytes);
    };
    api.cuMemsetD8Async = [](CudaPointer to, unsigned char value, size_t bytes, CudaStream) {
      std::memset(ToHost(to), value, bytes);
      return current->Call("cuMemsetD8Async");
    };
    api.cuModuleLoadData = [](CudaModule* module, const void* image) {
      current->ptx_ = static_cast<const char*>(image);
      return Make("cuModuleLoadData", module);
    };
    api.cuModuleUnload = [](CudaModule module) { return Free("cuModuleUnload", module); };
    api.cuModuleGetFunction = FindFunction;
    api.cuLaunchKernel = Launch;
    return api;
  }
};

EmulatedCuda::EmulatedCuda(EmulatedKernels kernels)
    : api_(EmulatedCudaFunctions::Table()), kernels_(std::move(kernels)) {
  DDP_CHECK(current == nullptr);
  current = this;
}

EmulatedCuda::~EmulatedCuda() {
  DDP_CHECK(live_ == 0);
  current = nullptr;
}

int EmulatedCuda::Count(const std::string& name) const {
  const auto found = counts_.find(name);
  return found == counts_.end() ? 0 : found->second;
}

void EmulatedCuda::Fail(const std::string& name, CudaResult result) { failures_[name] = result; }

CudaResult EmulatedCuda::Call(const std::string& name) {
  ++counts_[name];
  const auto found = failures_.find(name);
  return found == failures_.end() ? kCudaSuccess : found->second;
}

}  // namespace ddprun::testing
