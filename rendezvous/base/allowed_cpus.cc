#include "rendezvous/base/allowed_cpus.h"

#include <sched.h>

#include <vector>

namespace ddprun {
namespace {

constexpr int kMaxCpus = 65536;  // more than any kernel has (8192), which refuses a smaller mask

}  // namespace

std::set<int> AllowedCpus() {
  std::vector<cpu_set_t> mask(kMaxCpus / CPU_SETSIZE);
  const size_t size = mask.size() * sizeof(cpu_set_t);
  std::set<int> cpus;
  if (sched_getaffinity(0, size, mask.data()) != 0) return cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(static_cast<size_t>(cpu), size, mask.data())) cpus.insert(cpus.end(), cpu);
  }
  return cpus;
}

}  // namespace ddprun
