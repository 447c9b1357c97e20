#include "launcher/doctor/worker_count.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/cli/option_values.h"
#include "launcher/doctor/cuda_verdict.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {

absl::Status ResolveWorkers(const GpuReport& report, const DriverFacts& driver, int cpu_count,
                            LaunchConfig& config) {
  DDP_CHECK(config.workers_by != WorkersBy::kNumber);
  const std::optional<std::string> why = WhyNoGpu(report, driver);
  const bool is_auto = config.workers_by == WorkersBy::kGpuOrCpu;
  if (why && !is_auto) {
    return absl::FailedPreconditionError(
        absl::StrCat(config.SourceOf("nproc_per_node"), " 'gpu': ", *why,
                     "; or give a number, or cpu (", cpu_count, " here)"));
  }
  const int count = why ? std::max(cpu_count, 1) : static_cast<int>(report.gpus.size());
  config.workers_per_node = std::min(count, kMaxWorkersPerNode);
  config.workers_by = WorkersBy::kNumber;
  if (why && report.driver != DriverState::kMissing) {
    config.warnings.push_back(absl::StrCat(config.SourceOf("nproc_per_node"),
                                           " 'auto': one worker for each of ",
                                           config.workers_per_node, " CPUs, since ", *why));
  }
  return Validate(config);
}

}  // namespace ddprun::launcher
