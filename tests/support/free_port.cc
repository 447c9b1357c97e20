#include "tests/support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {
namespace {

// Without the ports that programs take by default: 29400 and 29500.
constexpr int kFirst = 12000;
constexpr int kCount = 17000;
constexpr int kTries = 1000;

}  // namespace

bool TakePort(int port) {
  static std::vector<UniqueFd> held;  // until the program ends
  UniqueFd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>(port));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
  // Only now: a bind with it would succeed beside another test's socket.
  const int on = 1;
  DDP_CHECK(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  held.push_back(std::move(fd));
  return true;
}

int FreePort() {
  static int attempt = 0;
  for (const int last = attempt + kTries; attempt < last;) {
    const int port = kFirst + (getpid() * 7 + attempt++ * 1013) % kCount;
    if (TakePort(port)) return port;
  }
  DDP_CHECK(false);
  return 0;
}

}  // namespace ddprun::testing
