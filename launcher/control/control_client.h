// Asking an agent over its control socket, from a command.
#ifndef DDPRUN_LAUNCHER_CONTROL_CONTROL_CLIENT_H_
#define DDPRUN_LAUNCHER_CONTROL_CONTROL_CLIENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct ControlReply {
  int status = 0;  // HTTP's
  std::string body;
};

// One request, waited for. Errors: UNAVAILABLE and others of the connection, DEADLINE_EXCEEDED;
// what the agent refuses is a reply.
absl::StatusOr<ControlReply> AskControl(const std::string& socket_path, const std::string& method,
                                        const std::string& target, Duration timeout);

// `text` as a value in a target's query. [pure]
std::string QueryValue(const std::string& text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONTROL_CONTROL_CLIENT_H_
