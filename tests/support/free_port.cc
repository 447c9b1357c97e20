#include "tests/support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
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

// None: it is taken, or the kernel does not know the family (EAFNOSUPPORT).
UniqueFd BoundTo(const void* address, socklen_t size) {
  const auto* raw = static_cast<const sockaddr*>(address);
  UniqueFd fd(socket(raw->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.is_open() && bind(fd.get(), raw, size) != 0) fd.Reset();
  return fd;
}

}  // namespace

bool TakePort(int port) {
  static std::vector<UniqueFd> held;  // until the program ends
  const in_port_t at = htons(static_cast<uint16_t>(port));
  sockaddr_in6 both{};  // IPv4 as well
  both.sin6_family = AF_INET6;
  both.sin6_port = at;
  UniqueFd fd = BoundTo(&both, sizeof both);
  if (!fd.is_open() && errno == EAFNOSUPPORT) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = at;
    fd = BoundTo(&address, sizeof address);
  }
  if (!fd.is_open()) return false;
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
