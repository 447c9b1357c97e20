// Connects fuzz targets to their own listening ports.
#ifndef DDPRUN_TESTS_FUZZ_LOOPBACK_H_
#define DDPRUN_TESTS_FUZZ_LOOPBACK_H_

#include <cstdint>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::fuzz {

// Connects to `port` of 127.0.0.1. Its end is a reset, so that the kernel keeps no port for it.
UniqueFd ConnectTo(uint16_t port);

}  // namespace ddprun::fuzz

#endif  // DDPRUN_TESTS_FUZZ_LOOPBACK_H_
