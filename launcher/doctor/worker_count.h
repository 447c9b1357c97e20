// --nproc_per_node=gpu and auto: the workers that a probe's report gives. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_WORKER_COUNT_H_
#define DDPRUN_LAUNCHER_DOCTOR_WORKER_COUNT_H_

#include "absl/status/status.h"
#include "launcher/cli/launch_config.h"
#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {

// Fills in config.workers_per_node: the visible GPUs; where there is none, with auto the CPUs. A
// driver that is there but does not work becomes a warning then. Errors, each one line:
// FailedPrecondition, there is no GPU; InvalidArgument, the count does not fit another option.
// REQUIRES: config.workers_by is not WorkersBy::kNumber.
absl::Status ResolveWorkers(const GpuReport& report, const DriverFacts& driver, int cpu_count,
                            LaunchConfig& config);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_WORKER_COUNT_H_
