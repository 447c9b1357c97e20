#include "tests/faults/disarm/disarm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace ddprun::testing {
namespace {

// The place of DDPRUN_TEST_DISARM among the names. Without a known one the program does not run: a
// twin that has all of its defences would prove nothing.
int NumberOff() {
  const char* const name = std::getenv("DDPRUN_TEST_DISARM");
  const std::vector<std::string>& names = MutantNames();
  const auto found = std::find(names.begin(), names.end(), name != nullptr ? name : "");
  if (found != names.end()) return static_cast<int>(found - names.begin()) + 1;
  std::fprintf(stderr, "ddprun_disarmed: DDPRUN_TEST_DISARM names no defence: \"%s\"\n",
               name != nullptr ? name : "");
  std::exit(98);
}

}  // namespace

const int number_off = NumberOff();

}  // namespace ddprun::testing
