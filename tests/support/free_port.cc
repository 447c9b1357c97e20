#include "tests/support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

int FreePort() {
  static int attempt = 0;
  for (const int last = attempt + 1000; attempt < last; ++attempt) {
    const int port = 12000 + (getpid() * 7 + attempt * 1013) % 18000;
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (is_free) {
      ++attempt;
      return port;
    }
  }
  DDP_CHECK(false);
  return 0;
}

}  // namespace ddprun::testing
