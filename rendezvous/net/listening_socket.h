// TCP sockets that listen.
#ifndef DDPRUN_RENDEZVOUS_NET_LISTENING_SOCKET_H_
#define DDPRUN_RENDEZVOUS_NET_LISTENING_SOCKET_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::rendezvous {

// Non-blocking, and exclusive (no SO_REUSEPORT): a second one on the port is EADDRINUSE and never
// a silent partner. "[::]" takes IPv4 too. The kernel cuts `backlog` to net.core.somaxconn. Not
// open: errno says why.
UniqueFd OpenListeningSocket(const sockaddr* address, socklen_t size, int backlog);

// On `host`, an IP address or "localhost" (empty: every address, "[::]" with IPv4 mapped, 0.0.0.0
// where there is no IPv6), and `port` (0: the kernel chooses), with a backlog as long as the kernel
// allows. ALREADY_EXISTS: the port is taken. Every error names the address.
absl::StatusOr<UniqueFd> ListenOn(const std::string& host, uint16_t port);

struct ListeningSockets {
  std::vector<UniqueFd> sockets;
  std::vector<std::string> hosts;  // of those that were asked for, where each of the sockets is
  bool is_everywhere = false;      // one socket for all addresses
};
// On each of the IP addresses `hosts`, but for those that this machine does not have.
absl::StatusOr<ListeningSockets> ListenOnThose(const std::vector<std::string>& hosts,
                                               uint16_t port);
// Likewise, by one port (0: the kernel chooses), or on every address where `hosts` is empty, and
// where of those that others reach none is left. Otherwise as ListenOn.
absl::StatusOr<ListeningSockets> ListenOnEach(const std::vector<std::string>& hosts, uint16_t port);

// On one, as ListenOn.
absl::StatusOr<ListeningSockets> ListenOnOne(const std::string& host, uint16_t port);

// A port of all addresses on which nobody listens and which the kernel gives to nobody: bound, so
// that only who sets SO_REUSEADDR, as we and PyTorch's store do, may bind it too, and listen. To
// find a free one and let go of it would leave it to anybody until somebody listens there.
absl::StatusOr<UniqueFd> KeepPort();

// Connections through this listener carry packets of 1280 bytes at most, in both directions: what
// every path takes that carries IPv6. Where a tunnel swallows larger ones, and what tells of that
// is swallowed as well, a long message would otherwise be sent again and again, and its sender be
// taken for silent. For small messages; large ones pay for it.
void AvoidLargePackets(int listener);

// The port of a bound IPv4 or IPv6 socket; 0 for any other descriptor.
uint16_t LocalPort(int socket);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_LISTENING_SOCKET_H_
