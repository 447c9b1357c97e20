// Whether ranks of one machine have a CPU each, and so may spin while they wait.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_OWN_CORE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_OWN_CORE_H_

#include <sched.h>

#include <span>

namespace ddp::internal {

// `allowed`: for each rank the CPUs that it may use. Exact for what launchers and cluster managers
// do, which is sets that are equal, apart, or one within the other. An empty set has no CPU.
bool HaveCoreEach(std::span<const cpu_set_t> allowed);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_OWN_CORE_H_
