#include "worker_runtime/gpu/gpu_utilisation.h"

#include <doctest/doctest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/in_child.h"
#include "tests/support/subprocess.h"

namespace ddp::internal {
namespace {

using ddprun::testing::InChild;

std::string Library(const std::string& name) {
  return ddprun::testing::Runfile("tests/worker_runtime/gpu/" + name);
}

// The share since that second, or the error.
std::string Told(const std::string& library, const std::string& uuid, int second) {
  return InChild({{"DDPRUN_NVML_LIB", library}}, [&] {
    const absl::StatusOr<GpuUtilisation> gpu = GpuUtilisation::Open(uuid);
    if (!gpu.ok()) return gpu.status().ToString();
    const auto since = std::chrono::system_clock::time_point(std::chrono::seconds(second));
    const absl::StatusOr<double> share = gpu->Since(since);
    return share.ok() ? absl::StrCat(*share) : share.status().ToString();
  });
}

TEST_CASE("gpu utilisation: the mean of the samples behind a moment, and of no others") {
  const std::string library = Library("libnvml_one_gpu.so");
  CHECK(Told(library, "GPU-fake", 999) == "0.5");
  CHECK(Told(library, "GPU-fake", 1000) == "0.75");
  CHECK(Told(library, "GPU-fake", 1001) == "0.5");
}

TEST_CASE("gpu utilisation: what is not there is told") {
  const std::string library = Library("libnvml_one_gpu.so");
  CHECK(Told(library, "GPU-fake", 1002) ==
        "NOT_FOUND: nvmlDeviceGetSamples: no sample (nvmlReturn_t 0)");
  CHECK(Told(library, "GPU-fake", 2000) ==
        "NOT_FOUND: nvmlDeviceGetSamples: no sample (nvmlReturn_t 6)");
  CHECK(Told(library, "MIG-other", 999) ==
        "FAILED_PRECONDITION: nvmlDeviceGetHandleByUUID of MIG-other: nvmlReturn_t 6");
  const std::string old = Library("libnvml_without_samples.so");
  CHECK(Told(old, "GPU-fake", 999) ==
        "FAILED_PRECONDITION: NVML " + old + ": it has no nvmlDeviceGetSamples");
  CHECK(Told("/nowhere/libnvml.so", "GPU-fake", 999).starts_with("NOT_FOUND: NVML: /nowhere/"));
}

}  // namespace
}  // namespace ddp::internal
