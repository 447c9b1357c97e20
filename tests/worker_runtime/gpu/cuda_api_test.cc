#include "worker_runtime/gpu/cuda_api.h"

#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "tests/support/contains.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddp::internal {
namespace {

using ddprun::testing::InChild;

std::string Library(const std::string& name) {
  return ddprun::testing::Runfile("tests/worker_runtime/gpu/" + name);
}

// "version|path", or "CODE: message".
std::string Load(const std::string& file) {
  return InChild({{"DDPRUN_CUDA_LIB", file}}, [] {
    const auto cuda = LoadCuda();
    if (!cuda.ok()) return cuda.status().ToString();
    return std::to_string(cuda->version) + "|" + cuda->path;
  });
}

TEST_CASE("cuda: the library that the variable names is loaded") {
  const std::string file = Library("libcuda_fake.so");
  CHECK(Load(file) == "12040|" + file);
}

TEST_CASE("cuda: no function of a loaded table is null but the last, which a driver may lack") {
  CHECK(InChild({{"DDPRUN_CUDA_LIB", Library("libcuda_fake.so")}}, [] {
          const auto cuda = LoadCuda();
          const auto* first = reinterpret_cast<void* const*>(&cuda->api);
          constexpr size_t kLast = sizeof(CudaApi) / sizeof(void*) - 1;
          for (size_t i = 0; i < kLast; ++i) {
            if (first[i] == nullptr) return "member " + std::to_string(i);
          }
          return std::string(first[kLast] == nullptr ? "full" : "more than the fake has");
        }) == "full");
}

TEST_CASE("cuda: a machine without a driver is told what to do") {
  const std::string text = Load("");
  if (!text.starts_with("NOT_FOUND")) return ddprun::testing::SkipTest("a driver is installed");
  CHECK(text ==
        "NOT_FOUND: CUDA driver: libcuda.so.1: cannot open shared object file: No such file or "
        "directory; install the NVIDIA driver, or start the container with --gpus "
        "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
}

TEST_CASE("cuda: a file that is not there is named with the variable that named it") {
  CHECK(Load("/nowhere/libcuda.so.1") ==
        "NOT_FOUND: CUDA driver: DDPRUN_CUDA_LIB: /nowhere/libcuda.so.1: cannot open shared object "
        "file: No such file or directory; name the driver's library, or unset the variable");
}

TEST_CASE("cuda: a file that is no library is named with the loader's words") {
  const ddprun::testing::TempDir dir;
  std::ofstream(dir.File("text")) << std::string(4096, 'x');
  const std::string text = Load(dir.File("text"));
  CHECK(text == Contains(dir.File("text") + ": invalid ELF header"));
}

TEST_CASE("cuda: a driver that is too old is told which version has the function") {
  const std::string file = Library("libcuda_old.so");
  CHECK(Load(file) ==
        "FAILED_PRECONDITION: CUDA driver " + file +
            ": it has no cuGraphInstantiateWithFlags, which drivers for CUDA 11.4 and "
            "newer have; update the NVIDIA driver");
}

TEST_CASE("cuda: the toolkit's stub is not taken for a driver") {
  const std::string file = Library("libcuda_stub.so");
  CHECK(Load(file) ==
        "FAILED_PRECONDITION: CUDA driver " + file +
            ": cuDriverGetVersion: CUDA driver is a stub library (CUDA_ERROR_STUB_LIBRARY); is it "
            "the toolkit's stub, or a driver without its kernel module?");
}

TEST_CASE("cuda: a result becomes a status in the driver's words") {
  CudaApi api{};
  api.cuGetErrorName = [](CudaResult, const char** name) {
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return kCudaSuccess;
  };
  api.cuGetErrorString = [](CudaResult, const char** text) {
    *text = "out of memory";
    return kCudaSuccess;
  };
  CHECK(CudaStatus(api, "cuMemAlloc", kCudaSuccess).ok());
  CHECK(CudaStatus(api, "cuMemAlloc", kCudaErrorOutOfMemory).ToString() ==
        "RESOURCE_EXHAUSTED: cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
  for (const CudaResult result :
       {kCudaErrorNoDevice, kCudaErrorDeviceUnavailable, kCudaErrorNoBinaryForGpu,
        kCudaErrorInvalidPtx, kCudaErrorUnsupportedPtxVersion, kCudaErrorStubLibrary}) {
    CHECK(CudaStatus(api, "f", result).code() == absl::StatusCode::kFailedPrecondition);
  }
  CHECK(CudaStatus(api, "f", kCudaErrorInvalidValue).code() == absl::StatusCode::kInvalidArgument);
  CHECK(CudaStatus(api, "f", kCudaErrorInvalidHandle).code() == absl::StatusCode::kInvalidArgument);
  CHECK(CudaStatus(api, "f", 700).code() == absl::StatusCode::kInternal);
}

// A newer driver returns codes that an older one cannot name.
TEST_CASE("cuda: a result that the driver does not know is given by its number") {
  CudaApi api{};
  api.cuGetErrorName = [](CudaResult, const char** name) {
    *name = nullptr;
    return kCudaErrorInvalidValue;
  };
  api.cuGetErrorString = api.cuGetErrorName;
  CHECK(CudaStatus(api, "cuInit", 4711).ToString() ==
        "INTERNAL: cuInit: unknown error (CUresult 4711)");
}

}  // namespace
}  // namespace ddp::internal
