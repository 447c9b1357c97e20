#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/listening_socket.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/port_listener.h"

namespace ddprun::rendezvous {
namespace {

// As long as the kernel allows: a thousand agents may come at once (net.core.somaxconn caps it).
constexpr int kBacklog = 4096;

SocketAddress AnyAddress(int family, uint16_t port) {
  SocketAddress address;
  if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    address.size = sizeof(v6);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    address.size = sizeof(v4);
  }
  return address;
}

absl::StatusOr<SocketAddress> ParseHost(const std::string& host, uint16_t port) {
  SocketAddress address = AnyAddress(AF_INET6, port);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) return address;
  address = AnyAddress(AF_INET, port);
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) return address;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot listen on \"", host, "\": not an IP address"));
}

absl::StatusOr<UniqueFd> Listen(const SocketAddress& address) {
  UniqueFd fd = OpenListeningSocket(address.get(), address.size, kBacklog);
  if (fd.is_open()) return fd;
  const int error = errno;
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat("port ", PortOf(address), " of ", IpText(address),
                                                 " is already in use (EADDRINUSE)"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("listen on ", AddressText(address)));
}

}  // namespace

absl::StatusOr<UniqueFd> BindListeningSocket(const std::string& host, uint16_t port) {
  if (!host.empty()) {
    absl::StatusOr<SocketAddress> address = ParseHost(host, port);
    if (!address.ok()) return address.status();
    return Listen(*address);
  }
  absl::StatusOr<UniqueFd> fd = Listen(AnyAddress(AF_INET6, port));
  if (fd.ok() || absl::IsAlreadyExists(fd.status())) return fd;
  // No IPv6 here (EAFNOSUPPORT, or EADDRNOTAVAIL where it is disabled by sysctl).
  return Listen(AnyAddress(AF_INET, port));
}

}  // namespace ddprun::rendezvous
