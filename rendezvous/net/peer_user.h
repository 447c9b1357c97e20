// Whose process is at the other end of a connection within this machine.
#ifndef DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
#define DDPRUN_RENDEZVOUS_NET_PEER_USER_H_

#include <sys/types.h>

#include <optional>

namespace ddprun::rendezvous {

// The user who has made the other end of `fd`, a connected TCP socket, by the kernel's word
// (sock_diag(7)). nullopt: it does not tell, as of an end on another machine.
std::optional<uid_t> PeerUser(int fd);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
