// What listens for remote agents, seen without gRPC.
#ifndef DDPRUN_RENDEZVOUS_SERVER_FRONTEND_H_
#define DDPRUN_RENDEZVOUS_SERVER_FRONTEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

class Frontend {
 public:
  // Ends every session and closes the port.
  virtual ~Frontend() = default;
  virtual uint16_t port() const = 0;
};

struct FrontendOptions {
  UniqueFd listening_socket;
  // The run that is served; empty: none yet, any is welcome. Called on any thread.
  std::function<std::string()> run_id;
  bool is_apart = false;  // Coordinator::Options
  std::function<void(UniqueFd)> on_store_connection;
  std::function<void()> on_no_descriptor;
};

// Serves gRPC on the socket.
absl::StatusOr<std::unique_ptr<Frontend>> StartGrpcFrontend(FrontendOptions options,
                                                            std::shared_ptr<Inbox> inbox);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_FRONTEND_H_
