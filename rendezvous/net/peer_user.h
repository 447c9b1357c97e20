// Whose process is at the other end of a connection within this machine.
#ifndef DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
#define DDPRUN_RENDEZVOUS_NET_PEER_USER_H_

#include <sys/types.h>

#include <optional>

namespace ddprun::rendezvous {

// The user who has made the other end of `fd`, a connected TCP socket, by the kernel's word
// (sock_diag(7)). nullopt: it does not tell, as of an end on another machine, or of one that has
// been closed: the kernel calls that root's.
std::optional<uid_t> PeerUser(int fd);

// Whether it tells at all. Asked before the first connection: it takes descriptors.
bool DoesKernelTellUsers();

// Whether a connection that came over loopback is not of this user or root. So is one whose other
// end the kernel does not tell, unless it tells of none: nobody who waits for an answer has closed.
bool IsOfOthers(int fd);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
