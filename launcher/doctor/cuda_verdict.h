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
// REQUIRES: the report is one of ProbeScope::kAll.
std::optional<std::string> WhyNoNccl(const GpuReport& report);
// The first of both.
std::optional<std::string> WhyNoCuda(const DoctorFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_CUDA_VERDICT_H_
