// Where this node's workers run: the CPUs and the GPU that each is given.
#ifndef DDPRUN_LAUNCHER_PLACEMENT_PLACEMENT_H_
#define DDPRUN_LAUNCHER_PLACEMENT_PLACEMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/launch_config.h"
#include "launcher/doctor/doctor_facts.h"
#include "launcher/placement/cpu_set.h"

namespace ddprun::launcher {

struct Placement {
  std::vector<CpuSet> cpus;  // by local rank; empty: the workers inherit ours
  // The GPUs that all workers see, for --nproc_per_node=gpu:...; empty: those that the launcher
  // sees.
  std::string visible_devices;
  std::vector<std::string> devices;  // of --virtual_local_rank, by local rank; empty: without it

  // Empty: inherited.
  CpuSet CpusOf(int local_rank) const {
    return cpus.empty() ? CpuSet() : cpus[static_cast<size_t>(local_rank)];
  }
};

// --nproc_per_node=gpu:1,3: "1,3", or those entries of `visible_devices`, the launcher's own
// CUDA_VISIBLE_DEVICES. REQUIRES: they are there (ResolveWorkers).
std::string ChosenDevices(const LaunchConfig& config,
                          const std::optional<std::string>& visible_devices);

// --virtual_local_rank: the one GPU of each worker, by its place in `visible_devices`, the
// launcher's own CUDA_VISIBLE_DEVICES, or HIP_VISIBLE_DEVICES, which `variable` names.
// InvalidArgument when that has fewer entries than workers, or hides all GPUs from several.
// REQUIRES: config.workers_by is kNumber.
absl::StatusOr<std::vector<std::string>> VirtualDevices(
    const LaunchConfig& config, const std::string& variable,
    const std::optional<std::string>& visible_devices);

// --numa_binding: the CPUs of each worker, near the GPU of its local rank. Without a driver, and
// where CUDA_VISIBLE_DEVICES hides every GPU (it is empty or -1), the workers are spread over the
// NUMA nodes. FailedPrecondition, one line: there is no such place.
// REQUIRES: config.numa_binding is set and config.workers_by is kNumber.
absl::StatusOr<std::vector<CpuSet>> BindToCpus(const LaunchConfig& config, const GpuReport& report,
                                               const DriverFacts& driver,
                                               const std::string& sys_root, const CpuSet& allowed);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLACEMENT_PLACEMENT_H_
