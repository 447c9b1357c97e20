// The address that sockets of tests use.
#ifndef DDPRUN_TESTS_SUPPORT_LOOPBACK_H_
#define DDPRUN_TESTS_SUPPORT_LOOPBACK_H_

#include <netinet/in.h>

#include <cstdint>

namespace ddprun::testing {

// 127.0.0.1; port 0 is one that the system chooses.
sockaddr_in Loopback(uint16_t port);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_LOOPBACK_H_
