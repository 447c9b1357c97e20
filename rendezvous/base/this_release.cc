#include "rendezvous/base/release.h"
#include "rendezvous/base/version.h"

namespace ddprun {

Release ThisRelease() { return {.protocol = 2, .version = kVersion}; }

}  // namespace ddprun
