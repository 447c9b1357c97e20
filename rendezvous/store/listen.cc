#include "rendezvous/store/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

// The kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 1 << 16;

absl::StatusOr<ListeningSocket> Listen(const sockaddr* address, socklen_t size, const char* name,
                                       uint16_t port) {
  const auto failed = [&](const char* call) {
    const int error = errno;
    const std::string what =
        absl::StrCat("store: ", call, " on ", name, ":", port, ": ", std::strerror(error));
    if (error == EADDRINUSE) return absl::FailedPreconditionError(what);
    return absl::Status(absl::ErrnoToStatusCode(error), what);
  };
  ListeningSocket socket_made;
  socket_made.fd.Reset(
      socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  const int fd = socket_made.fd.get();
  if (fd < 0) return failed("socket");
  const int on = 1;
  const int off = 0;
  // A fixed port must be free for the next round while old connections linger in TIME_WAIT; two
  // listeners still exclude each other.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd, address, size) != 0) return failed("bind");
  if (listen(fd, kBacklog) != 0) return failed("listen");
  sockaddr_storage bound{};
  socklen_t bound_size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &bound_size) != 0) {
    return failed("getsockname");
  }
  socket_made.port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return socket_made;
}

absl::StatusOr<ListeningSocket> ListenV4(uint32_t address, const char* name, uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(address);
  return Listen(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4), name, port);
}

}  // namespace

absl::StatusOr<ListeningSocket> ListenForStore(StoreServer::Bind bind, uint16_t port) {
  if (bind == StoreServer::Bind::kLoopback) return ListenV4(INADDR_LOOPBACK, "127.0.0.1", port);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_any;
  auto listening = Listen(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6), "[::]", port);
  if (listening.ok() || absl::IsFailedPrecondition(listening.status())) return listening;
  return ListenV4(INADDR_ANY, "0.0.0.0", port);  // A kernel without IPv6.
}

}  // namespace ddprun::rendezvous
