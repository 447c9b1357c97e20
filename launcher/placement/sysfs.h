// What /sys says about CPUs, NUMA nodes and where a GPU is.
#ifndef DDPRUN_LAUNCHER_PLACEMENT_SYSFS_H_
#define DDPRUN_LAUNCHER_PLACEMENT_SYSFS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/launch_config.h"
#include "launcher/placement/binding.h"

namespace ddprun::launcher {

// Every node, less the CPUs outside `allowed`, and of each CPU what `binding` asks. An error,
// FailedPrecondition and one line, names the file. `sys_root` is /sys, or a test's folder.
absl::StatusOr<Topology> ReadTopology(const std::string& sys_root, NumaBinding binding,
                                      const CpuSet& allowed);

// The NUMA node of a device by its PCI address as CUDA writes it ("0000:DC:00.0"). Where the kernel
// knows none (-1, usual with one node only), 0.
absl::StatusOr<int> ReadNodeOfDevice(const std::string& sys_root, const std::string& bus_id);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLACEMENT_SYSFS_H_
