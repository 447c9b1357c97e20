#include "worker_runtime/comm/shm/own_core.h"

namespace ddp::internal {
namespace {

bool IsWithin(const cpu_set_t& inner, const cpu_set_t& outer) {
  cpu_set_t both;
  CPU_AND(&both, &inner, &outer);
  return CPU_EQUAL(&both, &inner);
}

}  // namespace

// Hall's theorem, asked of the sets that occur and of all together.
bool HaveCoreEach(std::span<const cpu_set_t> allowed) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const cpu_set_t& outer : allowed) {
    int ranks = 0;
    for (const cpu_set_t& inner : allowed) ranks += IsWithin(inner, outer) ? 1 : 0;
    if (ranks > CPU_COUNT(&outer)) return false;
    CPU_OR(&all, &all, &outer);
  }
  return static_cast<int>(allowed.size()) <= CPU_COUNT(&all);
}

}  // namespace ddp::internal
