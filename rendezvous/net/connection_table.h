// Connections that gRPC has and over which no agent has joined yet.
//
// gRPC's own limits cannot end them in time: those of the handshake and of idleness count from
// when the one before was kept, and a call to anything, again and again, is never idle. So a
// duplicate of each descriptor stays here until its agent has joined; a connection that has not
// come so far when its time is over is shut down, at which gRPC drops its own end.
//
// Keyed by the text of the other end's address, which exists once at a time. Thread-safe. The
// listener's thread drives it.
#ifndef DDPRUN_RENDEZVOUS_NET_CONNECTION_TABLE_H_
#define DDPRUN_RENDEZVOUS_NET_CONNECTION_TABLE_H_

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// A connection to the coordinator that has not finished its HTTP/2 handshake, or that has no
// stream, lives so long. Less than the 5 s that the port gives a connection to join: gRPC says why
// it closes one.
inline constexpr int kIdleConnectionMs = 4000;

class ConnectionTable {
 public:
  // How often DropLate() wants to be called while anybody is here. A connection that has ended
  // keeps its descriptor no longer than that.
  static constexpr Duration kLook = std::chrono::milliseconds(250);

  // Watches the connection until `until`. False: there was no descriptor for it, or it has been
  // reset.
  bool Add(int connection, TimePoint until);
  // The agent at `peer` has joined: the connection is forgotten. Returns our address on which it
  // came in, which gRPC does not tell; size 0: it is not here.
  SocketAddress Joined(const SocketAddress& peer);
  // Shuts down the connections whose time is over and forgets those that have ended. When to call
  // it again; nullopt: not before the next Add().
  std::optional<TimePoint> DropLate(TimePoint now);

 private:
  struct Connection {
    UniqueFd duplicate;
    TimePoint until;
  };
  std::mutex mutex_;
  std::map<std::string, Connection> connections_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_CONNECTION_TABLE_H_
