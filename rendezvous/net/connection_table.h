// Whose the connections are that gRPC has, and over which of them an agent has joined.
//
// gRPC gets no socket of the port but one end of a pair (rendezvous/server/pipe.h), whose name in
// the kernel stands for the connection: gRPC tells it as the peer of a call. Thread-safe.
#ifndef DDPRUN_RENDEZVOUS_NET_CONNECTION_TABLE_H_
#define DDPRUN_RENDEZVOUS_NET_CONNECTION_TABLE_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

class ConnectionTable {
 public:
  struct Connection {
    SocketAddress peer;   // the agent's
    SocketAddress local;  // ours, on which it came in
    std::atomic<bool> has_joined{false};
  };

  // `peer` as gRPC tells it. Null: the connection is over.
  std::shared_ptr<Connection> Find(const std::string& peer) const;
  void Add(const std::string& peer, std::shared_ptr<Connection> connection);
  void Remove(const std::string& peer);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_CONNECTION_TABLE_H_
