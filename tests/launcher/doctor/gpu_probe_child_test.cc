#include "launcher/doctor/gpu_probe_child.h"

#include <cstdio>
#include <cstring>

#include <doctest/doctest.h>

#include "absl/status/status.h"
#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {
namespace {

using namespace ddp::internal;

// A driver of two GPUs.
CudaApi GoodDriver() {
  CudaApi api{};
  api.cuInit = [](unsigned) { return kCudaSuccess; };
  api.cuGetErrorName = [](CudaResult, const char** name) {
    *name = "CUDA_ERROR_NO_DEVICE";
    return kCudaSuccess;
  };
  api.cuGetErrorString = [](CudaResult, const char** text) {
    *text = "no CUDA-capable device is detected";
    return kCudaSuccess;
  };
  api.cuDeviceGetCount = [](int* count) {
    *count = 2;
    return kCudaSuccess;
  };
  api.cuDeviceGet = [](CudaDevice* device, int ordinal) {
    *device = ordinal;
    return kCudaSuccess;
  };
  api.cuDeviceGetName = [](char* name, int size, CudaDevice device) {
    std::snprintf(name, static_cast<size_t>(size), "GPU number %d", device);
    return kCudaSuccess;
  };
  api.cuDeviceGetUuid = [](CudaUuid* uuid, CudaDevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0xf0 + i);
    uuid->bytes[0] = static_cast<char>(device);
    return kCudaSuccess;
  };
  api.cuDeviceGetPCIBusId = [](char* bus_id, int size, CudaDevice) {
    std::snprintf(bus_id, static_cast<size_t>(size), "0000:18:00.0");
    return kCudaSuccess;
  };
  api.cuDeviceGetAttribute = [](int* value, int attribute, CudaDevice) {
    *value = attribute == kCudaDeviceAttributeComputeCapabilityMajor ? 9 : 4;
    return kCudaSuccess;
  };
  api.cuDeviceTotalMem = [](size_t* bytes, CudaDevice) {
    *bytes = 1 << 30;
    return kCudaSuccess;
  };
  return api;
}

template <typename Tell>
GpuReport Told(Tell tell) {
  std::string text;
  tell([&](std::string_view key, std::string_view value) { text += ProbeLine(key, value); });
  return ParseProbeLines(text);
}

TEST_CASE("gpu probe child: each GPU is described") {
  const GpuReport report = Told([](const ProbeSink& tell) { TellGpus(GoodDriver(), tell); });
  REQUIRE(report.gpus.size() == 2);
  CHECK(report.gpus[1] == Gpu{.memory_bytes = 1 << 30,
                              .major = 9,
                              .minor = 4,
                              .bus_id = "0000:18:00.0",
                              .uuid = "GPU-01f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff",
                              .name = "GPU number 1"});
  CHECK(report.gpu_error == "");
  CHECK(report.stage == "the NVIDIA driver (asked for its GPUs)");
}

TEST_CASE("gpu probe child: a slice of a GPU is named as MIG, by its UUID or by its name") {
  const auto begin = [](const CudaApi& api) {
    const GpuReport report = Told([&](const ProbeSink& tell) { TellGpus(api, tell); });
    return report.gpus.empty() ? report.gpu_error : report.gpus[0].uuid.substr(0, 8);
  };
  CudaApi api = GoodDriver();
  api.cuDeviceGetGpuUuid = api.cuDeviceGetUuid;
  CHECK(begin(api) == "GPU-00f1");
  api.cuDeviceGetGpuUuid = [](CudaUuid* uuid, CudaDevice) {
    *uuid = {};
    return kCudaSuccess;
  };
  CHECK(begin(api) == "MIG-00f1");
  api.cuDeviceGetGpuUuid = [](CudaUuid*, CudaDevice) { return kCudaErrorUnknown; };
  CHECK(begin(api) == "GPU-00f1");
  api.cuDeviceGetName = [](char* name, int size, CudaDevice) {
    std::snprintf(name, static_cast<size_t>(size), "NVIDIA H200 MIG 1g.18gb");
    return kCudaSuccess;
  };
  CHECK(begin(api) == "MIG-00f1");
  api.cuDeviceGetGpuUuid = nullptr;
  CHECK(begin(api) == "MIG-00f1");
  api.cuDeviceGetUuid = [](CudaUuid*, CudaDevice) { return kCudaErrorUnknown; };
  CHECK(begin(api).find("GPU 0: cuDeviceGetUuid: ") == 0);
}

TEST_CASE("gpu probe child: a driver that does not initialise is quoted") {
  CudaApi api = GoodDriver();
  api.cuInit = [](unsigned) { return kCudaErrorNoDevice; };
  const GpuReport report = Told([&](const ProbeSink& tell) { TellGpus(api, tell); });
  CHECK(report.gpus.empty());
  CHECK(report.gpu_error == "cuInit: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)");
  CHECK(report.stage == "the NVIDIA driver (cuInit)");
}

TEST_CASE("gpu probe child: a GPU that fell off the bus is named, those before it kept") {
  CudaApi api = GoodDriver();
  api.cuDeviceTotalMem = [](size_t* bytes, CudaDevice device) {
    *bytes = 1;
    return device == 1 ? kCudaErrorUnknown : kCudaSuccess;
  };
  const GpuReport report = Told([&](const ProbeSink& tell) { TellGpus(api, tell); });
  CHECK(report.gpus.size() == 1);
  CHECK(report.gpu_error.find("GPU 1: cuDeviceTotalMem: ") == 0);
}

TEST_CASE("gpu probe child: a missing driver and one that cannot be used are told apart") {
  const auto told = [](absl::Status status) {
    return Told([&](const ProbeSink& tell) { TellDriver(status, tell); });
  };
  CHECK(told(absl::NotFoundError("x")).driver == DriverState::kMissing);
  CHECK(told(absl::FailedPreconditionError("x")).driver == DriverState::kUnusable);
  CHECK(told(absl::NotFoundError("x")).driver_error == "x");
  const GpuReport report = Told([](const ProbeSink& tell) {
    TellDriver(LoadedCuda{.api = {}, .path = "/lib/libcuda.so.1", .version = 12040}, tell);
  });
  CHECK(report.driver == DriverState::kOpened);
  CHECK(report.driver_file == "/lib/libcuda.so.1");
  CHECK(report.cuda_version == 12040);
}

TEST_CASE("gpu probe child: what an NCCL lacks is told with the version that has it") {
  LoadedNccl nccl{.api = {}, .path = "/lib/libnccl.so.2", .version = 21803};
  GpuReport report = Told([&](const ProbeSink& tell) { TellNccl(nccl, tell); });
  CHECK(report.nccl_file == "/lib/libnccl.so.2");
  CHECK(report.nccl_version == "2.18.3");
  REQUIRE(report.nccl_lacks.size() == 1);
  CHECK(report.nccl_lacks[0] == "ncclMemAlloc and ncclCommRegister (since 2.19)");
  nccl.api.ncclMemAlloc = [](void**, size_t) { return kNcclSuccess; };
  report = Told([&](const ProbeSink& tell) { TellNccl(nccl, tell); });
  CHECK(report.nccl_lacks.empty());
  report = Told([](const ProbeSink& tell) { TellNccl(absl::NotFoundError("NCCL: no"), tell); });
  CHECK(report.nccl_error == "NCCL: no");
  CHECK(report.nccl_file == "");
}

TEST_CASE("gpu probe child: cuBLAS with its version, or why there is none") {
  const FoundCublas cublas{.path = "/lib/libcublas.so.13", .version = "13.1.0"};
  GpuReport report = Told([&](const ProbeSink& tell) { TellCublas(cublas, tell); });
  CHECK(report.cublas_file == "/lib/libcublas.so.13");
  CHECK(report.cublas_version == "13.1.0");
  report = Told([](const ProbeSink& tell) { TellCublas(absl::NotFoundError("no"), tell); });
  CHECK(report.cublas_error == "no");
}

}  // namespace
}  // namespace ddprun::launcher
