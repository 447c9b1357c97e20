#include "launcher/placement/allowed_cpus.h"

#include <sched.h>

#include <cerrno>
#include <vector>

namespace ddprun::launcher {

CpuSet AllowedCpus() {
  // The kernel refuses a mask that is smaller than its own.
  for (int count = CPU_SETSIZE; count <= kMaxCpus; count *= 2) {
    std::vector<cpu_set_t> mask(static_cast<size_t>(count) / CPU_SETSIZE);
    const size_t size = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, size, mask.data()) != 0) {
      if (errno == EINVAL) continue;
      return {};
    }
    CpuSet cpus;
    for (int cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), size, mask.data())) cpus.insert(cpus.end(), cpu);
    }
    return cpus;
  }
  return {};
}

}  // namespace ddprun::launcher
