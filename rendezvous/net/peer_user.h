// Whose process is at the other end of a connection within this machine.
#ifndef DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
#define DDPRUN_RENDEZVOUS_NET_PEER_USER_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// Asks the kernel: by sock_diag(7), or, where that tells of nobody (a filter on system calls,
// gVisor, a kernel without tcp_diag), by the tables of /proc/net. Keeps its descriptors from the
// first question on: where none is left later, users are told all the same. For one thread.
class PeerUsers {
 public:
  struct SourcesForTest {
    bool has_sock_diag = true;
    std::string tables = "/proc/net";
  };
  PeerUsers() : PeerUsers(SourcesForTest()) {}
  explicit PeerUsers(SourcesForTest sources);

  // The user who has made the other end of `fd`, a connected TCP socket. nullopt: the kernel does
  // not tell, as of an end on another machine, or of one that has been closed, which it calls
  // root's.
  std::optional<uid_t> UserOf(int fd);
  // The user whose socket of this machine listens at `address`. nullopt: the kernel does not tell.
  std::optional<uid_t> ListenerAt(const SocketAddress& address);
  // Whether a connection that came over loopback is not of this user or root. So is one whose other
  // end the kernel does not tell, as nobody who waits for an answer has closed; but where it tells
  // of nobody everybody passes: in a sandbox there is mostly one user.
  bool IsOfOthers(int fd);
  // Whether users are told here: of a listening socket of our own. True where none can be made now.
  bool DoesKernelTell();

 private:
  // Of the socket at `here` that is connected to `there`, or listens where none is.
  struct Socket {
    uint8_t state = 0;
    uid_t user = 0;
  };
  enum class Source { kNone, kSockDiag, kTables };
  std::optional<Socket> Find(const SocketAddress& here, const SocketAddress& there);
  std::optional<Socket> AskSockDiag(const SocketAddress& here, const SocketAddress& there);
  std::optional<Socket> LookInTables(const SocketAddress& here, const SocketAddress& there);
  std::string ReadTable(size_t table);

  const SourcesForTest sources_;
  Source source_ = Source::kNone;     // that has told of a socket
  UniqueFd link_;                     // to sock_diag
  uint32_t number_ = 0;               // of the last question there
  bool is_short_ = false;             // a source could not be opened for want of a descriptor
  std::array<UniqueFd, 2> tables_{};  // of IPv4 and IPv6
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_PEER_USER_H_
