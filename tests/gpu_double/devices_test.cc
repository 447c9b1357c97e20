// Devices, contexts and builds of the double. Each case asks a process of its own: the driver reads
// its environment once.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>

#include "tests/gpu_double/double_api.h"

namespace ddprun::gpu_double {
namespace {

// What `body` returns in a process of its own under `env`.
int InProcess(const ScopedEnv::Env& env, const std::function<int()>& body) {
  return RunRankProcesses(1,
                          [&](int) {
                            const ScopedEnv scoped(env);
                            return body();
                          })
      .front();
}

// The devices that the process sees as a number: 5 and 3 are 153 (a leading 1, then the digits that
// tell UUIDs apart); 100 + e when cuInit returns e < 100, else e.
int Visible(const std::string& list) {
  return InProcess({{"CUDA_VISIBLE_DEVICES", list}}, [] {
    const CudaResult result = Api().cuInit(0);
    if (result != kCudaSuccess) return result < 100 ? 100 + result : result;
    int count = 0;
    Api().cuDeviceGetCount(&count);
    int seen = 1;
    for (int device = 0; device < count; ++device) {
      CudaUuid uuid;
      Api().cuDeviceGetUuid_v2(&uuid, device);
      seen = 10 * seen + (uuid.bytes[0] & 15);
    }
    return seen;
  });
}

// doctest cannot print functions.
template <typename Function>
bool Has(Function* function) {
  return function != nullptr;
}

}  // namespace

TEST_CASE("CUDA_VISIBLE_DEVICES: indices and UUIDs choose and order; a bad entry ends the list") {
  CHECK(Visible("5,3") == 153);
  CHECK(Visible("7") == 17);
  CHECK(Visible("GPU-a2,GPU-a1") == 121);
  CHECK(Visible("GPU-a2132435-4657") == 12);
  CHECK(Visible("1,-1,2") == 11);
  CHECK(Visible("1,8,2") == 11);
  CHECK(Visible("1,x,2") == 11);
  CHECK(Visible("GPU-a4,GPU-ff,GPU-a5") == 14);
}

TEST_CASE("CUDA_VISIBLE_DEVICES: nothing left is no device") {
  CHECK(Visible("-1") == kCudaErrorNoDevice);
  CHECK(Visible("x") == kCudaErrorNoDevice);
  CHECK(Visible("0,0") == kCudaErrorNoDevice);
  CHECK(Visible("GPU-") == kCudaErrorNoDevice);  // ambiguous
  const auto with_empty = [] {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return Api().cuInit(0);
  };
  CHECK(InProcess({}, with_empty) == kCudaErrorNoDevice);
}

TEST_CASE("settings: count, driver version, memory and the result of cuInit") {
  const auto count = [] {
    int devices = 0;
    Api().cuInit(0);
    Api().cuDeviceGetCount(&devices);
    return devices;
  };
  CHECK(InProcess({}, count) == 8);
  CHECK(InProcess({{"DDPRUN_DOUBLE_GPUS", "2"}}, count) == 2);
  CHECK(InProcess({{"DDPRUN_DOUBLE_GPUS", "0"}}, [] { return Api().cuInit(0); }) ==
        kCudaErrorNoDevice);
  CHECK(InProcess({{"DDPRUN_DOUBLE_FAULT", "cuinit=34"}}, [] { return Api().cuInit(0); }) == 34);
  CHECK(InProcess({{"DDPRUN_DOUBLE_DRIVER", "12040"}}, [] {
          int version = 0;
          Api().cuDriverGetVersion(&version);
          return version == 12040 ? 0 : 1;
        }) == 0);
  CHECK(InProcess({{"DDPRUN_DOUBLE_MEMORY", "1000"}}, [] {
          UseDevice(0);
          CudaPointer first = 0, second = 0;
          const bool fits = Api().cuMemAlloc_v2(&first, 600) == kCudaSuccess;
          const bool is_full = Api().cuMemAlloc_v2(&second, 600) == kCudaErrorOutOfMemory;
          Api().cuMemFree_v2(first);
          return fits && is_full && Api().cuMemAlloc_v2(&second, 600) == kCudaSuccess ? 0 : 1;
        }) == 0);
}

TEST_CASE("slices: those of one GPU share its bus and its UUID, and have their own") {
  CHECK(InProcess({{"DDPRUN_DOUBLE_MIG", "2"}}, [] {
          Api().cuInit(0);
          std::string bus[3], whole[3], own[3];
          for (int device = 0; device < 3; ++device) {
            char text[32] = "";
            CudaUuid uuid;
            Api().cuDeviceGetPCIBusId(text, sizeof text, device);
            bus[device] = text;
            Api().cuDeviceGetUuid(&uuid, device);
            whole[device].assign(uuid.bytes, sizeof uuid.bytes);
            Api().cuDeviceGetUuid_v2(&uuid, device);
            own[device].assign(uuid.bytes, sizeof uuid.bytes);
          }
          if (bus[0] != "0000:10:00.0" || bus[1] != bus[0] || bus[2] == bus[0]) return 1;
          if (whole[1] != whole[0] || whole[2] == whole[0]) return 2;
          return own[0] != own[1] && own[0] != whole[0] && own[1] != whole[0] ? 0 : 3;
        }) == 0);
}

TEST_CASE("faults: a misspelt one ends the process") {
  CHECK(InProcess({{"DDPRUN_DOUBLE_FAULT", "hangs=1"}}, [] { return Api().cuInit(0); }) ==
        128 + SIGABRT);
  CHECK(InProcess({{"DDPRUN_DOUBLE_FAULT", "hang@2"}}, [] { return Api().cuInit(0); }) ==
        128 + SIGABRT);
}

TEST_CASE("context: calls need one that is current on the thread and retained") {
  const int code = InProcess({}, [] {
    const DoubleApi& api = Api();
    CudaPointer memory = 0;
    CudaStream stream = nullptr;
    CudaContext context = nullptr;
    int count = 0;
    if (api.cuDeviceGetCount(&count) != 3) return 1;
    if (api.cuInit(0) != kCudaSuccess) return 2;
    if (api.cuMemAlloc_v2(&memory, 8) != kCudaErrorInvalidContext) return 3;
    if (api.cuStreamSynchronize(nullptr) != kCudaErrorInvalidContext) return 4;
    if (api.cuDevicePrimaryCtxRetain(&context, 99) != kCudaErrorInvalidDevice) return 5;
    if (api.cuDevicePrimaryCtxRetain(&context, 1) != kCudaSuccess) return 6;
    if (api.cuStreamCreateWithPriority(&stream, 1, 0) != kCudaErrorInvalidContext) return 7;
    if (api.cuCtxSetCurrent(context) != kCudaSuccess) return 8;
    if (api.cuStreamCreateWithPriority(&stream, 1, 0) != kCudaSuccess) return 9;
    NcclComm comm = nullptr;
    api.cuCtxSetCurrent(nullptr);
    if (api.ncclCommInitRankConfig(&comm, 1, NewId(), 0, nullptr) != kNcclUnhandledCudaError) {
      return 10;
    }
    api.cuCtxSetCurrent(context);
    api.cuDevicePrimaryCtxRelease_v2(1);
    if (api.cuStreamQuery(stream) != 709) return 11;
    if (api.cuDevicePrimaryCtxRelease_v2(1) != kCudaErrorInvalidContext) return 12;
    return 0;
  });
  CHECK(code == 0);
}

TEST_CASE("fork: the child of a process that uses the driver cannot") {
  CHECK(InProcess({}, [] {
          UseDevice(0);
          return InProcess({}, [] { return Api().cuInit(0); });
        }) == 3);
}

TEST_CASE("memory: the host dies when it touches the device's") {
  // The sanitizers turn the signal into an exit of their own.
  CHECK(InProcess({}, [] {
          UseDevice(0);
          const DeviceBuffer buffer(64);
          return *static_cast<volatile char*>(buffer.pointer()) == 1 ? 1 : 0;
        }) > 1);
}

TEST_CASE("builds: each says its version and lacks what its name promises") {
  const auto version = [](const DoubleApi& api) {
    int value = 0;
    api.ncclGetVersion(&value);
    return value;
  };
  CHECK(version(Api()) == 22807);
  CHECK(Has(Api().ncclMemAlloc));
  const DoubleApi no_register = OpenDouble("gpu_double_noregister");
  CHECK(version(no_register) == 21803);
  CHECK_FALSE(Has(no_register.ncclMemAlloc));
  CHECK(Has(no_register.ncclAllReduce));
  const DoubleApi old = OpenDouble("gpu_double_old");
  CHECK(version(old) == 21701);
  CHECK_FALSE(Has(old.ncclMemAlloc));
  CHECK_FALSE(Has(old.ncclCommRegister));
  CHECK(Has(old.ncclAllReduce));
  const DoubleApi broken = OpenDouble("gpu_double_broken");
  CHECK_FALSE(Has(broken.ncclAllReduce));
  CHECK_FALSE(Has(broken.cuStreamWaitEvent));
  CHECK(Has(broken.cuStreamSynchronize));
  const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_NCCL_VERSION", "22809"}});
  CHECK(version(Api()) == 22809);
}

}  // namespace ddprun::gpu_double
