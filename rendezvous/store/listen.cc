#include "rendezvous/store/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/listening_socket.h"

namespace ddprun::rendezvous {
namespace {

// The kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 1 << 16;

absl::StatusOr<UniqueFd> Listen(const sockaddr* address, socklen_t size, const char* name,
                                uint16_t port) {
  UniqueFd fd = OpenListeningSocket(address, size, kBacklog);
  if (fd.is_open()) return fd;
  const int error = errno;
  const std::string what =
      absl::StrCat("store: listen on ", name, ":", port, ": ", std::strerror(error));
  if (error == EADDRINUSE) return absl::FailedPreconditionError(what);
  return absl::Status(absl::ErrnoToStatusCode(error), what);
}

absl::StatusOr<UniqueFd> ListenV4(uint32_t address, const char* name, uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(address);
  return Listen(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4), name, port);
}

}  // namespace

absl::StatusOr<UniqueFd> ListenForStore(StoreServer::Bind bind, uint16_t port) {
  if (bind == StoreServer::Bind::kLoopback) return ListenV4(INADDR_LOOPBACK, "127.0.0.1", port);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_any;
  absl::StatusOr<UniqueFd> listening =
      Listen(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6), "[::]", port);
  if (listening.ok() || absl::IsFailedPrecondition(listening.status())) return listening;
  return ListenV4(INADDR_ANY, "0.0.0.0", port);  // A kernel without IPv6.
}

}  // namespace ddprun::rendezvous
