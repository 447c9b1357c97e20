// One Attach call of the client: gRPC's callbacks, turned into facts that one thread picks up.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_ATTACH_CALL_H_
#define DDPRUN_RENDEZVOUS_CLIENT_ATTACH_CALL_H_

#include <functional>
#include <memory>
#include <optional>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// Driven by its owner's thread; `on_change` is called on gRPC's, after something below changed, and
// must only wake the owner. It is not called any more once the destructor has returned.
class AttachCall {
 public:
  // Connects to `address` and opens the stream.
  static std::unique_ptr<AttachCall> Start(const SocketAddress& address,
                                           std::function<void()> on_change);
  // Cancels what is not over and lets go of it: gRPC ends it by itself.
  ~AttachCall();
  AttachCall(const AttachCall&) = delete;
  AttachCall& operator=(const AttachCall&) = delete;

  // REQUIRES: can_write().
  void Write(v1::AgentMessage message);
  // Says that nothing more comes. REQUIRES: can_write().
  void HalfClose();

  // Nothing is being written, and HalfClose was not called.
  bool can_write() const;
  // The next message received; nullopt: none is here. One is read from the wire at a time.
  std::optional<v1::CoordinatorMessage> TakeMessage();
  // How the call ended, after its last message was taken; nullopt: it goes on.
  std::optional<grpc::Status> end() const;

 private:
  class Reactor;
  explicit AttachCall(std::shared_ptr<Reactor> reactor);
  const std::shared_ptr<Reactor> reactor_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_ATTACH_CALL_H_
