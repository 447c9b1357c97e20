// What the facts mean: whether CUDA training could run here, how many workers the GPUs make, and a
// finding for each thing that was looked at. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_CUDA_VERDICT_H_
#define DDPRUN_LAUNCHER_DOCTOR_CUDA_VERDICT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/cli/launch_config.h"
#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {

// Each is one line, what is lacking and what to do; none: nothing is.

// No GPU that could be used: no driver, one that does not work, or none that is visible.
std::optional<std::string> WhyNoGpu(const GpuReport& report, const DriverFacts& driver);
// REQUIRES, here and below: the report is one of kProbeAll.
std::optional<std::string> WhyNoNccl(const GpuReport& report);
// NCCL was built for a newer major version of CUDA than the driver serves; within one, every driver
// will do. None also when one of the versions is unknown.
std::optional<std::string> WhyDriverTooOldForNccl(const GpuReport& report);
// The first of these.
std::optional<std::string> WhyNoCuda(const DoctorFacts& facts);

// 12040 is "12.4".
std::string CudaVersionText(int version);

// Fills in config.workers_per_node: the visible GPUs, or those of them that config.gpus chooses,
// which must be there; where there is none, with auto the CPUs. A
// driver that is there but does not work becomes a warning then. FailedPrecondition: there is no
// GPU. REQUIRES: config.workers_by is not WorkersBy::kNumber.
absl::Status ResolveWorkers(const GpuReport& report, const DriverFacts& driver, int cpu_count,
                            LaunchConfig& config);

struct Finding {
  std::string subject;  // "driver", "gpu 0", "/dev/shm"
  std::string value;
  std::string advice;  // what a lack means and what to do, one line; empty: nothing is lacking
};

// In the order they are shown.
std::vector<Finding> FindingsOf(const DoctorFacts& facts);

// "139.8 GiB", "64 MiB", "8 KiB".
std::string BytesText(uint64_t bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_CUDA_VERDICT_H_
