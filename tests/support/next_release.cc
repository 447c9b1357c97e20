// Linked into a program in place of the product's: a release whose protocol is the next one.
#include "rendezvous/base/release.h"

namespace ddprun {

Release ThisRelease() { return {.protocol = 2, .version = "9.0.0-test"}; }

}  // namespace ddprun
