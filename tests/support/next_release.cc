// Linked into a program in place of the product's: a release whose protocol is the next one, or the
// one that TEST_RELEASE_PROTOCOL says. It is asked for with each greeting and each join; there it
// has a bug, which shows as soon as there is a file of the name that TEST_RELEASE_BUG says.
#include <unistd.h>

#include <cstdlib>

#include "rendezvous/base/check.h"
#include "rendezvous/base/release.h"

namespace ddprun {

Release ThisRelease() {
  const char* const bug = std::getenv("TEST_RELEASE_BUG");
  DDP_CHECK(bug == nullptr || access(bug, F_OK) != 0);
  const char* const protocol = std::getenv("TEST_RELEASE_PROTOCOL");
  return {.protocol = protocol == nullptr ? 3 : std::atoi(protocol), .version = "9.0.0-test"};
}

}  // namespace ddprun
