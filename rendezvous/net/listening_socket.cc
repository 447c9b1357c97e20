#include "rendezvous/net/listening_socket.h"

#include <netinet/in.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {
namespace {

// A thousand agents may come at once.
constexpr int kBacklog = 1 << 16;

absl::StatusOr<UniqueFd> Listen(const SocketAddress& address) {
  UniqueFd fd = OpenListeningSocket(address.get(), address.size, kBacklog);
  if (fd.is_open()) return fd;
  const int error = errno;
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", PortOf(address), " of ", IpText(address),
                     " is already in use (EADDRINUSE): use another port, or end the "
                     "program that has it"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("listen on ", AddressText(address)));
}

}  // namespace

UniqueFd OpenListeningSocket(const sockaddr* address, socklen_t size, int backlog) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return fd;
  const int on = 1;
  const int off = 0;
  // A fixed port must be free for the next round while old connections linger in TIME_WAIT; two
  // listeners still exclude each other.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  const bool is_listening = bind(fd.get(), address, size) == 0 && listen(fd.get(), backlog) == 0;
  if (!is_listening) fd.Reset();  // which leaves errno as it was
  return fd;
}

absl::StatusOr<UniqueFd> ListenOn(const std::string& host, uint16_t port) {
  if (!host.empty()) {
    const std::optional<SocketAddress> address =
        ParseIp(host == "localhost" ? "127.0.0.1" : host, port);
    if (address) return Listen(*address);
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on \"", host,
                     "\": not an IP address of this machine; leave the host out for all of them"));
  }
  absl::StatusOr<UniqueFd> fd = Listen(*ParseIp("::", port));
  if (fd.ok() || absl::IsAlreadyExists(fd.status())) return fd;
  // No IPv6 here (EAFNOSUPPORT, or EADDRNOTAVAIL where it is disabled by sysctl).
  return Listen(*ParseIp("0.0.0.0", port));
}

uint16_t LocalPort(int socket) { return PortOf(LocalAddress(socket)); }

}  // namespace ddprun::rendezvous
