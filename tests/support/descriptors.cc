#include "tests/support/descriptors.h"

#include <sys/resource.h>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

size_t AllowManyDescriptors() {
  rlimit limit{};
  DDP_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  DDP_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit.rlim_cur;
}

}  // namespace ddprun::testing
