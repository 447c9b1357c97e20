// How busy a GPU is, by the samples of NVIDIA's management library (NVML).
#ifndef DDPRUN_WORKER_RUNTIME_GPU_GPU_UTILISATION_H_
#define DDPRUN_WORKER_RUNTIME_GPU_GPU_UTILISATION_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace ddp::internal {

// NVML's part of the ABI that is used here. Results are nvmlReturn_t, 0 for success.
struct NvmlSample {
  unsigned long long microseconds;  // since 1970
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_wide;
  } value;
};
struct NvmlApi {
  int (*init)();                                 // nvmlInit_v2
  int (*find)(const char* uuid, void** device);  // nvmlDeviceGetHandleByUUID
  int (*sample)(void* device, int kind, unsigned long long last_seen, int* value_type,
                unsigned* count, NvmlSample* samples);  // nvmlDeviceGetSamples
};

// One GPU. The library stays loaded until the process ends.
class GpuUtilisation {
 public:
  // `uuid` as Device's. NotFound without the library, which comes with the driver (DDPRUN_NVML_LIB
  // names another); FailedPrecondition where it does not know the GPU or lacks a function.
  static absl::StatusOr<GpuUtilisation> Open(const std::string& uuid);

  // The mean share of the time, 0 to 1, in which a kernel of any process ran, over the samples
  // behind `since`: the driver takes about six a second and keeps the last 100. NotFound where it
  // has none, as for parts of a GPU (MIG).
  absl::StatusOr<double> Since(std::chrono::system_clock::time_point since) const;

 private:
  GpuUtilisation(const NvmlApi& api, void* device) : api_(api), device_(device) {}

  NvmlApi api_;
  void* device_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_GPU_UTILISATION_H_
