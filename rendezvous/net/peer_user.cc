#include "rendezvous/net/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {
namespace {

// The kernel answers within the call; no thread is to hang if it does not.
constexpr timeval kPatience = {.tv_sec = 1, .tv_usec = 0};

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 query;
};

bool Fill(const SocketAddress& address, __be16& port, __be32 (&ip)[4]) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address.storage, sizeof(in));
    port = in.sin_port;
    ip[0] = in.sin_addr.s_addr;
    return true;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  sockaddr_in6 in;
  std::memcpy(&in, &address.storage, sizeof(in));
  port = in.sin6_port;
  std::memcpy(ip, &in.sin6_addr, sizeof(ip));
  return true;
}

}  // namespace

PeerUsers::PeerUsers() : link_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {
  setsockopt(link_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  static const bool does = DoesKernelTell();
  does_kernel_tell_ = does;
}

// Of a connection of our own, whose other end is there.
bool PeerUsers::DoesKernelTell() {
  const UniqueFd door(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(door.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return false;
  if (listen(door.get(), 1) != 0) return false;
  const SocketAddress place = LocalAddress(door.get());
  if (connect(one.get(), place.get(), place.size) != 0) return false;
  const UniqueFd other(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return UserOf(other.get()).has_value();
}

std::optional<PeerUsers::Socket> PeerUsers::Find(const SocketAddress& here,
                                                 const SocketAddress& there) {
  Request request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  inet_diag_sockid& ends = request.query.id;
  if (!Fill(here, ends.idiag_sport, ends.idiag_src)) return std::nullopt;
  if (!Fill(there, ends.idiag_dport, ends.idiag_dst)) return std::nullopt;
  request.query.sdiag_family = static_cast<__u8>(here.storage.ss_family);
  request.query.sdiag_protocol = IPPROTO_TCP;
  request.query.idiag_states = ~0U;
  ends.idiag_cookie[0] = ends.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  request.header.nlmsg_seq = ++number_;
  if (send(link_.get(), &request, sizeof(request), 0) != sizeof(request)) return std::nullopt;
  alignas(nlmsghdr) char reply[512];
  nlmsghdr header{};
  inet_diag_msg found;
  // An answer that came too late for an earlier question is passed over.
  while (header.nlmsg_seq != number_) {
    const ssize_t size = recv(link_.get(), reply, sizeof(reply), 0);
    if (size < static_cast<ssize_t>(sizeof(header))) return std::nullopt;
    std::memcpy(&header, reply, sizeof(header));
  }
  const bool is_answer =
      header.nlmsg_type == SOCK_DIAG_BY_FAMILY && header.nlmsg_len >= NLMSG_LENGTH(sizeof(found));
  if (!is_answer) return std::nullopt;
  std::memcpy(&found, reply + NLMSG_HDRLEN, sizeof(found));
  if (found.idiag_inode == 0) return std::nullopt;
  return Socket{.state = found.idiag_state, .user = found.idiag_uid};
}

std::optional<uid_t> PeerUsers::UserOf(int fd) {
  // As the other end sees it.
  const std::optional<Socket> found = Find(PeerAddress(fd), LocalAddress(fd));
  if (!found || found->state != TCP_ESTABLISHED) return std::nullopt;
  return found->user;
}

std::optional<uid_t> PeerUsers::ListenerAt(const SocketAddress& address) {
  // No connection leads to port 0.
  const std::optional<SocketAddress> nobody = ParseIp(IpText(address), 0);
  const std::optional<Socket> found = nobody ? Find(address, *nobody) : std::nullopt;
  if (!found || found->state != TCP_LISTEN) return std::nullopt;
  return found->user;
}

bool PeerUsers::IsOfOthers(int fd) {
  const std::optional<uid_t> user = UserOf(fd);
  if (!user) return does_kernel_tell_;
  return *user != geteuid() && *user != 0;
}

}  // namespace ddprun::rendezvous
