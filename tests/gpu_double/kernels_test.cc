// Copies between devices, and the kernels that the double runs.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/gpu_double/double_api.h"
#include "tests/support/contains.h"
#include "worker_runtime/gpu/sum_ptx.h"

namespace ddprun::gpu_double {
namespace {

CudaContext ContextOf(int device) {
  UseDevice(device);
  CudaContext context = nullptr;
  CHECK(Api().cuCtxGetCurrent(&context) == kCudaSuccess);
  return context;
}

// A kernel of sum.cu on the current device.
struct Sum {
  Sum() {
    CHECK(Api().cuModuleLoadData(&module, ddp::internal::kSumPtx) == kCudaSuccess);
    CHECK(Api().cuModuleGetFunction(&function, module, "sum_float32") == kCudaSuccess);
  }
  ~Sum() { CHECK(Api().cuModuleUnload(module) == kCudaSuccess); }

  CudaResult Launch(CudaPointer sum, CudaPointer input, CudaStream stream) const {
    int64_t inputs = 1, count = 2;
    void* arguments[] = {&sum, &input, &inputs, &count, &count};
    return Api().cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
  }

  CudaModule module = nullptr;
  CudaFunction function = nullptr;
};

TEST_CASE("peer copy: from one device to another, in the order of its stream") {
  const CudaContext first = ContextOf(0), second = ContextOf(1);
  const DeviceBuffer target(std::string(4, 'a'));
  TestStream stream;
  UseDevice(0);
  const DeviceBuffer source(std::string(4, 'b'));
  const auto copy = [&](CudaContext to, CudaContext from, size_t bytes) {
    return Api().cuMemcpyPeerAsync(target.address(), to, source.address(), from, bytes,
                                   stream.get());
  };
  CHECK(copy(first, second, 4) == kCudaErrorInvalidValue);  // that is not where the memory lies
  CHECK(copy(second, first, 5) == kCudaErrorInvalidValue);
  CHECK(copy(second, nullptr, 4) == kCudaErrorInvalidContext);
  int hold = 0;
  CHECK(Api().ddprun_double_hold(stream.get(), &hold) == kCudaSuccess);
  CHECK(copy(second, first, 4) == kCudaSuccess);
  CHECK(target.Read() == "aaaa");
  Api().ddprun_double_release(hold);
  CHECK(stream.Synchronize() == kCudaSuccess);
  CHECK(target.Read() == "bbbb");
}

TEST_CASE("peer access: between two devices, not of one with itself") {
  const CudaContext second = ContextOf(1), first = ContextOf(0);
  int can = 0;
  CHECK(Api().cuDeviceCanAccessPeer(&can, 0, 1) == kCudaSuccess);
  CHECK(can == 1);
  CHECK(Api().cuDeviceCanAccessPeer(&can, 0, 800) == kCudaErrorInvalidDevice);
  CHECK(Api().cuCtxEnablePeerAccess(second, 0) == kCudaSuccess);
  CHECK(Api().cuCtxEnablePeerAccess(first, 0) == kCudaErrorInvalidContext);
}

TEST_CASE("kernels: one that the double knows runs when its stream gets there") {
  UseDevice(0);
  TestStream stream;
  const DeviceBuffer sum(BytesOf<float>({1, 2})), input(BytesOf<float>({10, 20}));
  {
    const Sum kernel;
    int hold = 0;
    CHECK(Api().ddprun_double_hold(stream.get(), &hold) == kCudaSuccess);
    CHECK(kernel.Launch(sum.address(), input.address(), stream.get()) == kCudaSuccess);
    CHECK(sum.Read() == BytesOf<float>({1, 2}));
    CHECK(Api().ddprun_double_leaks() == Contains("modules=1"));
    Api().ddprun_double_release(hold);
  }
  CHECK(stream.Synchronize() == kCudaSuccess);
  CHECK(sum.Read() == BytesOf<float>({11, 22}));
}

TEST_CASE("kernels: a stream or memory of another device is an error") {
  UseDevice(1);
  TestStream other_stream;
  const DeviceBuffer other(BytesOf<float>({1, 2}));
  UseDevice(0);
  TestStream stream;
  const DeviceBuffer sum(BytesOf<float>({1, 2}));
  const Sum kernel;
  CHECK(kernel.Launch(sum.address(), sum.address(), other_stream.get()) == kCudaErrorInvalidHandle);
  CHECK(kernel.Launch(sum.address(), other.address(), stream.get()) == kCudaErrorInvalidValue);
  CudaFunction function = nullptr;
  CHECK(Api().cuModuleGetFunction(&function, kernel.module, "strange") == 500);
  CHECK(Api().cuModuleGetFunction(&function, nullptr, "sum_float32") == kCudaErrorInvalidHandle);
}

}  // namespace
}  // namespace ddprun::gpu_double
