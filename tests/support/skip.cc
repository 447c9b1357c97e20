#include "tests/support/skip.h"

#include <cstdio>

namespace ddprun::testing {

void SkipTest(const std::string& why) {
  std::printf("SKIPPED: %s\n", why.c_str());
  std::fflush(stdout);
}

}  // namespace ddprun::testing
