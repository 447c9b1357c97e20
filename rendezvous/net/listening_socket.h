// TCP sockets that listen.
#ifndef DDPRUN_RENDEZVOUS_NET_LISTENING_SOCKET_H_
#define DDPRUN_RENDEZVOUS_NET_LISTENING_SOCKET_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

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

// The port of a bound IPv4 or IPv6 socket; 0 for any other descriptor.
uint16_t LocalPort(int socket);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_LISTENING_SOCKET_H_
