// The CPUs that this process may use.
#ifndef DDPRUN_RENDEZVOUS_BASE_ALLOWED_CPUS_H_
#define DDPRUN_RENDEZVOUS_BASE_ALLOWED_CPUS_H_

#include <set>

namespace ddprun {

// The calling thread's affinity mask, by the kernel's numbers: the kernel keeps it within the
// cgroup's CPUs and those that are online. Empty when the kernel does not say.
std::set<int> AllowedCpus();

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_ALLOWED_CPUS_H_
