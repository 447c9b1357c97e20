#include "worker_runtime/gpu/gpu_utilisation.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/dynamic_library.h"

namespace ddp::internal {
namespace {

constexpr int kGpuUtilisationSamples = 1;  // NVML_GPU_UTILIZATION_SAMPLES
constexpr int kUnsignedInt = 1;            // NVML_VALUE_TYPE_UNSIGNED_INT

absl::StatusOr<NvmlApi> LoadNvml() {
  const char* given = std::getenv("DDPRUN_NVML_LIB");
  const bool is_given = given != nullptr && *given != '\0';
  const auto library = DynamicLibrary::Open(is_given ? given : "libnvidia-ml.so.1");
  if (!library.ok()) {
    return absl::NotFoundError(absl::StrCat("NVML: ", library.status().message()));
  }
  NvmlApi api{};
  const char* missing = nullptr;
  const auto take = [&](const char* symbol, auto& member) {
    if (!library->Take(symbol, member)) missing = symbol;
  };
  take("nvmlInit_v2", api.init);
  take("nvmlDeviceGetHandleByUUID", api.find);
  take("nvmlDeviceGetSamples", api.sample);
  if (missing == nullptr) return api;
  return absl::FailedPreconditionError(
      absl::StrCat("NVML ", library->path(), ": it has no ", missing));
}

}  // namespace

absl::StatusOr<GpuUtilisation> GpuUtilisation::Open(const std::string& uuid) {
  const absl::StatusOr<NvmlApi> api = LoadNvml();
  if (!api.ok()) return api.status();
  if (const int result = api->init(); result != 0) {
    return absl::FailedPreconditionError(absl::StrCat("nvmlInit: nvmlReturn_t ", result));
  }
  void* device = nullptr;
  if (const int result = api->find(uuid.c_str(), &device); result != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("nvmlDeviceGetHandleByUUID of ", uuid, ": nvmlReturn_t ", result));
  }
  return GpuUtilisation(*api, device);
}

absl::StatusOr<double> GpuUtilisation::Since(std::chrono::system_clock::time_point since) const {
  const auto last_seen = static_cast<unsigned long long>(
      std::chrono::duration_cast<std::chrono::microseconds>(since.time_since_epoch()).count());
  int type = kUnsignedInt;
  unsigned count = 0;
  int result = api_.sample(device_, kGpuUtilisationSamples, last_seen, &type, &count, nullptr);
  std::vector<NvmlSample> samples(result == 0 ? count : 0);
  if (!samples.empty()) {
    result = api_.sample(device_, kGpuUtilisationSamples, last_seen, &type, &count, samples.data());
    samples.resize(result == 0 && count < samples.size() ? count : samples.size());
  }
  double sum = 0;
  int counted = 0;
  for (const NvmlSample& sample : samples) {
    // The buffer is filled up with what is older.
    if (sample.microseconds <= last_seen) continue;
    sum += sample.value.as_unsigned / 100.0;
    ++counted;
  }
  if (result != 0 || type != kUnsignedInt || counted == 0) {
    return absl::NotFoundError(
        absl::StrCat("nvmlDeviceGetSamples: no sample (nvmlReturn_t ", result, ")"));
  }
  return sum / counted;
}

}  // namespace ddp::internal
