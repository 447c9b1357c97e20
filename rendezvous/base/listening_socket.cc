#include "rendezvous/base/listening_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace ddprun {

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

uint16_t LocalPort(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  if (bound.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  }
  if (bound.ss_family != AF_INET6) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
}

}  // namespace ddprun
