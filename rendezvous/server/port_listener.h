// The rendezvous port: one listening socket of our own, whose connections are told apart by their
// first byte before anything else may cost memory or time.
//
//   0x00 a worker that looks for its store    'P' HTTP/2, for gRPC
//   0x01 a hello (hello.h), answered here     0x16 TLS, which is not configured: closed
//   anything else is closed, and so is a connection that says nothing for 5 s.
//
// A connection that gRPC got is shut down when no agent has joined over it within the same 5 s,
// counted from its coming (connection_table.h).
//
// At most 64 connections may be silent at a time. While there are so many no further one is
// accepted (it waits in the kernel's backlog), but from its second second on the oldest is closed
// to make room. A limit per source address is not kept: behind one address may be a whole cluster
// (NAT), and on one machine all agents are 127.0.0.1. One thread; the socket is bound without
// SO_REUSEPORT, so that a second coordinator on the port is an error and never a silent partner.
#ifndef DDPRUN_RENDEZVOUS_SERVER_PORT_LISTENER_H_
#define DDPRUN_RENDEZVOUS_SERVER_PORT_LISTENER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/connection_table.h"
#include "rendezvous/net/interrupt.h"

namespace ddprun::rendezvous {

class PortListener {
 public:
  static constexpr size_t kMaxSilent = 64;
  static constexpr Duration kSilenceLimit = std::chrono::seconds(5);
  // How long accept rests when this process has no descriptor left: without a rest it would spin.
  static constexpr Duration kAcceptRest = std::chrono::milliseconds(100);

  struct Handlers {
    // Both are called on the listener's thread with the connection unread and non-blocking.
    std::function<void(UniqueFd)> on_store;  // not set: closed
    std::function<void(UniqueFd)> on_http2;
    std::function<void()> on_no_descriptor;  // likewise, at each rest of accept; may be unset
    ConnectionTable& connections;            // gets what on_http2 gets; outlives the listener
    std::function<std::string()> hello_reply;
    Duration silence_limit = kSilenceLimit;  // a fifth of it when crowded
  };

  // Serves `listening_socket` until destroyed.
  static absl::StatusOr<std::unique_ptr<PortListener>> Start(UniqueFd listening_socket,
                                                             Handlers handlers);
  ~PortListener();
  PortListener(const PortListener&) = delete;
  PortListener& operator=(const PortListener&) = delete;

 private:
  struct Connection {
    UniqueFd fd;
    TimePoint since;
    bool is_answered = false;  // a hello: stays until the other side has read and closed
  };

  PortListener(UniqueFd listening_socket, Handlers handlers)
      : listening_socket_(std::move(listening_socket)), handlers_(std::move(handlers)) {}
  void Run();
  int MillisecondsToWait(TimePoint now) const;
  void AcceptAll(TimePoint now);
  void OnReadable(std::list<Connection>::iterator connection);
  void AnswerHello(Connection& connection);
  void DropSilent(TimePoint now);
  Duration silence_limit() const {
    return is_crowded() ? handlers_.silence_limit / 5 : handlers_.silence_limit;
  }
  bool is_crowded() const { return silent_.size() >= kMaxSilent; }

  const UniqueFd listening_socket_;
  const Handlers handlers_;
  Interrupt stop_;

  // The thread's own.
  std::list<Connection> silent_;  // oldest first
  TimePoint accept_again_at_{};   // after a lack of descriptors
  std::optional<TimePoint> look_at_connections_at_;

  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_PORT_LISTENER_H_
