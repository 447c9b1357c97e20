// The CPUs that this process may use.
#ifndef DDPRUN_LAUNCHER_PLACEMENT_ALLOWED_CPUS_H_
#define DDPRUN_LAUNCHER_PLACEMENT_ALLOWED_CPUS_H_

#include "launcher/placement/cpu_set.h"

namespace ddprun::launcher {

// The calling thread's affinity mask, which the kernel keeps within the cgroup's CPUs and those
// that are online. Empty when the kernel does not say.
CpuSet AllowedCpus();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLACEMENT_ALLOWED_CPUS_H_
