// Whether CUDA training could run here, and if not, the first reason. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_CUDA_VERDICT_H_
#define DDPRUN_LAUNCHER_DOCTOR_CUDA_VERDICT_H_

#include <optional>
#include <string>

#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {

// Each is one line, what is lacking and what to do; none: nothing is.

// No GPU that could be used: no driver, one that does not work, or none that is visible.
std::optional<std::string> WhyNoGpu(const GpuReport& report, const DriverFacts& driver);
// REQUIRES, here and below: the report is one of ProbeScope::kAll.
std::optional<std::string> WhyNoNccl(const GpuReport& report);
// NCCL was built for a newer major version of CUDA than the driver serves; within one, every driver
// will do. None also when one of the versions is unknown.
std::optional<std::string> WhyDriverTooOldForNccl(const GpuReport& report);
// The first of these.
std::optional<std::string> WhyNoCuda(const DoctorFacts& facts);

// 12040 is "12.4".
std::string CudaVersionText(int version);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_CUDA_VERDICT_H_
