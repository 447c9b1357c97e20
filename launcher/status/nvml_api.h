// The part of NVIDIA's management library (NVML) that is used here: declared by us, opened at run
// time. It comes with the driver and opens no CUDA context.
#ifndef DDPRUN_LAUNCHER_STATUS_NVML_API_H_
#define DDPRUN_LAUNCHER_STATUS_NVML_API_H_

#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// tests/launcher/status/nvml_abi_test.cc compares these with NVIDIA's nvml.h, where there is one.
// Results are nvmlReturn_t.
inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlInsufficientSize = 7;
inline constexpr int kNvmlGpuIsLost = 15;
inline constexpr unsigned long long kNvmlXidEvent = 0x8;  // nvmlEventTypeXidCriticalError
inline constexpr unsigned long long kNvmlNotAvailable = ~0ULL;
inline constexpr int kNvmlGpuTemperature = 0;  // NVML_TEMPERATURE_GPU

using NvmlDevice = struct NvmlOpaqueDevice*;
using NvmlEventSet = struct NvmlOpaqueEventSet*;
struct NvmlUtilisation {
  unsigned gpu, memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {  // nvmlProcessInfo_v2_t, which is v3's too
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
struct NvmlEvent {
  NvmlDevice device;
  unsigned long long type, data;  // data: the XID
  unsigned gpu_instance, compute_instance;
};

// Null where this version of the library has no such function; never those before `utilisation`.
struct NvmlApi {
  int (*init)();
  int (*count)(unsigned* count);
  int (*find)(unsigned index, NvmlDevice* device);
  int (*name)(NvmlDevice device, char* name, unsigned length);

  int (*utilisation)(NvmlDevice device, NvmlUtilisation* utilisation);
  int (*memory)(NvmlDevice device, NvmlMemory* memory);
  int (*temperature)(NvmlDevice device, int sensor, unsigned* celsius);
  int (*clock_reasons)(NvmlDevice device, unsigned long long* reasons);
  int (*processes)(NvmlDevice device, unsigned* count, NvmlProcess* processes);
  int (*index)(NvmlDevice device, unsigned* index);
  int (*make_events)(NvmlEventSet* set);
  int (*register_events)(NvmlDevice device, unsigned long long types, NvmlEventSet set);
  int (*wait)(NvmlEventSet set, NvmlEvent* event, unsigned timeout_ms);
};

// NotFound without the library, FailedPrecondition where it lacks what must be there. May hang for
// ever, as every function may.
absl::StatusOr<NvmlApi> LoadNvml(const std::string& library);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_NVML_API_H_
