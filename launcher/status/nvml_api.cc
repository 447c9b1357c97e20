#include "launcher/status/nvml_api.h"

#include "absl/strings/str_cat.h"
#include "ddp/dynamic_library.h"

namespace ddprun::launcher {

absl::StatusOr<NvmlApi> LoadNvml(const std::string& library) {
  const auto opened = ddp::DynamicLibrary::Open(library);
  if (!opened.ok()) return absl::NotFoundError(absl::StrCat("NVML: ", opened.status().message()));
  NvmlApi api{};
  const char* missing = nullptr;
  const auto need = [&](const char* symbol, auto& member) {
    if (!opened->Take(symbol, member)) missing = symbol;
  };
  need("nvmlInit_v2", api.init);
  need("nvmlDeviceGetCount_v2", api.count);
  need("nvmlDeviceGetHandleByIndex_v2", api.find);
  need("nvmlDeviceGetName", api.name);
  if (missing != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("NVML ", opened->path(), ": it has no ", missing));
  }
  opened->Take("nvmlDeviceGetUtilizationRates", api.utilisation);
  opened->Take("nvmlDeviceGetMemoryInfo", api.memory);
  opened->Take("nvmlDeviceGetTemperature", api.temperature);
  // The second is the name of before R535; it has the same bits.
  if (!opened->Take("nvmlDeviceGetCurrentClocksEventReasons", api.clock_reasons)) {
    opened->Take("nvmlDeviceGetCurrentClocksThrottleReasons", api.clock_reasons);
  }
  // The third, without a number, has another struct.
  if (!opened->Take("nvmlDeviceGetComputeRunningProcesses_v3", api.processes)) {
    opened->Take("nvmlDeviceGetComputeRunningProcesses_v2", api.processes);
  }
  opened->Take("nvmlDeviceGetIndex", api.index);
  opened->Take("nvmlEventSetCreate", api.make_events);
  opened->Take("nvmlDeviceRegisterEvents", api.register_events);
  opened->Take("nvmlEventSetWait_v2", api.wait);
  return api;
}

}  // namespace ddprun::launcher
