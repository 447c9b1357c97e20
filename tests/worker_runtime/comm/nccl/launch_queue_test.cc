// On the double of CUDA, in a process of its own: the driver is initialised once per process.
#include "worker_runtime/comm/nccl/launch_queue.h"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/in_child.h"
#include "tests/support/subprocess.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {
namespace {

CudaResult (*query_of_double)(CudaEvent) = nullptr;
bool has_device_failed = false;

// The double's devices never fail: this one says of an event what a driver says behind a kernel
// that read where nothing is.
CudaResult Query(CudaEvent event) {
  return has_device_failed ? CudaResult{700} : query_of_double(event);
}

TEST_CASE("launch queue: an operation that failed on the device has the driver's error, no end") {
  const std::string driver = ddprun::testing::Runfile("tests/gpu_double/libgpu_double.so");
  const std::map<std::string, std::string> env = {
      {"DDPRUN_CUDA_LIB", driver}, {"CUDA_VISIBLE_DEVICES", ""}};  // the latter unset
  const std::string told = ddprun::testing::InChild(env, [] {
    LoadedCuda cuda = *LoadCuda();
    query_of_double = cuda.api.cuEventQuery;
    cuda.api.cuEventQuery = Query;
    if (const auto count = CountGpus(cuda.api); !count.ok()) return count.status().ToString();
    const auto device = Device::Open(cuda.api, 0);
    if (!device.ok()) return device.status().ToString();
    LaunchQueue queue(**device, nullptr, {.timeout = std::chrono::minutes(1)});
    if (absl::Status status = queue.Start(); !status.ok()) return status.ToString();
    has_device_failed = true;
    queue.SubmitBarrier();
    const absl::Status status = queue.AskDriver();
    const uint64_t last_done = queue.last_done().sequence;
    has_device_failed = false;
    if (!queue.Release(std::chrono::minutes(1))) return std::string("not released");
    return absl::StrCat(status.ToString(), ", done: ", last_done);
  });
  CHECK(told == "INTERNAL: barrier #1: unknown error (CUresult 700), done: 0");
}

}  // namespace
}  // namespace ddp::internal
