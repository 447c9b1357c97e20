// A TCP socket that listens.
#ifndef DDPRUN_RENDEZVOUS_BASE_LISTENING_SOCKET_H_
#define DDPRUN_RENDEZVOUS_BASE_LISTENING_SOCKET_H_

#include <sys/socket.h>

#include <cstdint>

#include "rendezvous/base/unique_fd.h"

namespace ddprun {

// Non-blocking, and exclusive (no SO_REUSEPORT): a second one on the port is EADDRINUSE and never
// a silent partner. "[::]" takes IPv4 too. The kernel cuts `backlog` to net.core.somaxconn. Not
// open: errno says why.
UniqueFd OpenListeningSocket(const sockaddr* address, socklen_t size, int backlog);

// The port of a bound IPv4 or IPv6 socket; 0 for any other descriptor.
uint16_t LocalPort(int socket);

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_LISTENING_SOCKET_H_
