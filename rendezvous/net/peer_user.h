// Whose process is at the other end of a connection within this machine.
#ifndef DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
#define DDPRUN_RENDEZVOUS_NET_PEER_USER_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// Asks the kernel (sock_diag(7)). Has its descriptor from the beginning: where none is left, users
// are told all the same. For one thread.
class PeerUsers {
 public:
  PeerUsers();

  // The user who has made the other end of `fd`, a connected TCP socket. nullopt: the kernel does
  // not tell, as of an end on another machine, or of one that has been closed, which it calls
  // root's.
  std::optional<uid_t> UserOf(int fd);
  // The user whose socket of this machine listens at `address`. nullopt: the kernel does not tell.
  std::optional<uid_t> ListenerAt(const SocketAddress& address);
  // Whether a connection that came over loopback is not of this user or root. So is one whose other
  // end the kernel does not tell, unless it tells of none: nobody who waits for an answer has
  // closed.
  bool IsOfOthers(int fd);

 private:
  bool DoesKernelTell();
  // Of the socket at `here` that is connected to `there`, or listens where none is.
  struct Socket {
    uint8_t state = 0;
    uid_t user = 0;
  };
  std::optional<Socket> Find(const SocketAddress& here, const SocketAddress& there);

  const UniqueFd link_;
  uint32_t number_ = 0;  // of the last question
  bool does_kernel_tell_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
