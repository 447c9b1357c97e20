#include "tests/support/descriptors.h"

#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

size_t AllowManyDescriptors() {
  rlimit limit{};
  DDP_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  DDP_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit.rlim_cur;
}

size_t CountDescriptors(int pid) {
  size_t count = 0;
  std::error_code error;
  std::filesystem::directory_iterator at("/proc/" + std::to_string(pid) + "/fd", error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) ++count;
  return count;
}

}  // namespace ddprun::testing
