#include "tests/support/loopback.h"

#include <arpa/inet.h>

namespace ddprun::testing {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace ddprun::testing
