// On the double of CUDA, in processes of their own: the driver is initialised once per process.
#include "worker_runtime/gpu/device.h"

#include <map>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/in_child.h"
#include "tests/support/subprocess.h"
#include "worker_runtime/gpu/event_pool.h"

namespace ddp::internal {
namespace {

using Variables = std::map<std::string, std::string>;

const CudaApi& Api() {
  static const absl::StatusOr<LoadedCuda> cuda = LoadCuda();
  return cuda->api;
}

std::string OnDouble(Variables env, const std::function<std::string()>& body) {
  env["DDPRUN_CUDA_LIB"] = ddprun::testing::Runfile("tests/gpu_double/libgpu_double.so");
  env.emplace("CUDA_VISIBLE_DEVICES", "");  // unset
  return ddprun::testing::InChild(env, body);
}

std::string CountWith(const Variables& env) {
  return OnDouble(env, [] {
    const absl::StatusOr<int> count = CountGpus(Api());
    return count.ok() ? std::to_string(*count) : count.status().ToString();
  });
}

TEST_CASE("gpu: those that CUDA_VISIBLE_DEVICES leaves are counted") {
  CHECK(CountWith({}) == "8");
  CHECK(CountWith({{"DDPRUN_DOUBLE_GPUS", "2"}}) == "2");
  CHECK(CountWith({{"CUDA_VISIBLE_DEVICES", "3,1"}}) == "2");
  CHECK(CountWith({{"CUDA_VISIBLE_DEVICES", "GPU-a2"}}) == "1");
  CHECK(CountWith({{"CUDA_VISIBLE_DEVICES", "-1"}}) == "0");
  CHECK(CountWith({{"DDPRUN_DOUBLE_GPUS", "0"}}) == "0");
  CHECK(OnDouble({}, [] {
          setenv("CUDA_VISIBLE_DEVICES", "", 1);
          return std::to_string(CountGpus(Api()).value_or(-1));
        }) == "0");
}

TEST_CASE("gpu: a driver that does not start says why") {
  const std::string words = CountWith({{"DDPRUN_DOUBLE_FAULT", "cuinit=803"}});
  CAPTURE(words);
  CHECK(words.starts_with("FAILED_PRECONDITION: cuInit: "));
  CHECK(words == Contains("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
}

TEST_CASE("gpu: a rank takes its own by local rank, or the only one that it sees") {
  CHECK(*OrdinalFor(0, 8) == 0);
  CHECK(*OrdinalFor(7, 8) == 7);
  CHECK(*OrdinalFor(7, 1) == 0);
  const absl::Status none = OrdinalFor(0, 0).status();
  CHECK(absl::IsFailedPrecondition(none));
  CHECK(none.message() == Contains("CUDA_VISIBLE_DEVICES"));
  const absl::Status few = OrdinalFor(2, 2).status();
  CHECK(absl::IsFailedPrecondition(few));
  CHECK(few.message().find("local rank 2 has no GPU: CUDA shows 2 (") == 0);
}

TEST_CASE("gpu: an open one tells its name and UUID, by the order that the user chose") {
  const std::string words = OnDouble({{"CUDA_VISIBLE_DEVICES", "5,2"}}, [] {
    if (!CountGpus(Api()).ok()) return std::string("no driver");
    const auto device = Device::Open(Api(), 1);
    if (!device.ok()) return device.status().ToString();
    return std::to_string((*device)->ordinal()) + " " + (*device)->name() + " " + (*device)->uuid();
  });
  CAPTURE(words);
  CHECK(words.starts_with("1 "));
  CHECK(words == Contains(" GPU-a2"));
  CHECK(words.size() > 40);
}

TEST_CASE("gpu: a slice of one has a MIG UUID") {
  const std::string words = OnDouble({{"DDPRUN_DOUBLE_MIG", "1"}}, [] {
    if (!CountGpus(Api()).ok()) return std::string("no driver");
    const auto device = Device::Open(Api(), 1);
    return device.ok() ? (*device)->uuid() : device.status().ToString();
  });
  CHECK(words == "MIG-a1122334-4556-6778-899a-abbccddeef00");
}

TEST_CASE("gpu: one that is not there is refused with its number") {
  const std::string words = OnDouble({{"DDPRUN_DOUBLE_GPUS", "2"}}, [] {
    if (!CountGpus(Api()).ok()) return std::string("no driver");
    return Device::Open(Api(), 2).status().ToString();
  });
  CAPTURE(words);
  CHECK(words == Contains("cuDeviceGet(2): "));
}

// The context current on this thread, as a number.
std::string Current() {
  CudaContext context = nullptr;
  if (Api().cuCtxGetCurrent(&context) != kCudaSuccess) return "?";
  return std::to_string(reinterpret_cast<uintptr_t>(context));
}

TEST_CASE("gpu: a device is current for a while, and the caller's is so again afterwards") {
  CHECK(OnDouble({}, [] {
          if (!CountGpus(Api()).ok()) return std::string("no driver");
          const auto mine = Device::Open(Api(), 0);
          const auto theirs = Device::Open(Api(), 1);
          if (!mine.ok() || !theirs.ok()) return std::string("no device");
          if (Current() != "0") return std::string("there was a context");
          {
            const CurrentDevice current(**mine);
            if (!current.status().ok() || Current() == "0") return std::string("not current");
          }
          if (Current() != "0") return std::string("none was not restored");
          if (!(*theirs)->MakeCurrent().ok()) return std::string("not made current");
          const std::string before = Current();
          {
            const CurrentDevice outer(**mine);
            const std::string during = Current();
            if (during == before) return std::string("still theirs");
            {
              const CurrentDevice inner(**mine);
              if (Current() != during) return std::string("another inside");
            }
            if (Current() != during) return std::string("lost inside");
          }
          return Current() == before ? std::string("restored") : std::string("not restored");
        }) == "restored");
}

TEST_CASE("gpu: events are used again, and after a failure left alone") {
  CHECK(OnDouble({}, [] {
          if (!CountGpus(Api()).ok()) return std::string("no driver");
          const auto device = Device::Open(Api(), 0);
          if (!device.ok() || !(*device)->MakeCurrent().ok()) return std::string("no device");
          CudaEvent event = nullptr;
          {
            EventPool pool(**device);
            const CudaEvent first = pool.Take().value_or(nullptr);
            const CudaEvent second = pool.Take().value_or(nullptr);
            if (first == nullptr || first == second) return std::string("not two events");
            pool.GiveBack(first);
            if (pool.Take().value_or(nullptr) != first) return std::string("not used again");
            pool.GiveBack(first);
            pool.GiveBack(second);
            event = first;
          }
          if (Api().cuEventQuery(event) == kCudaSuccess) return std::string("not destroyed");
          {
            EventPool pool(**device);
            event = pool.Take().value_or(nullptr);
            pool.GiveBack(event);
            pool.Abandon();
          }
          return std::string(Api().cuEventQuery(event) == kCudaSuccess ? "fine" : "destroyed");
        }) == "fine");
}

}  // namespace
}  // namespace ddp::internal
