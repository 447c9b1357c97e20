// Sockets between ranks of a group, and how they connect.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_SOCKETS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_SOCKETS_H_

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"

namespace ddp::internal {

// A non-blocking socket that connects to `address`, a number, and `port`, or has. Unavailable with
// the cause alone: who calls names the rank.
absl::StatusOr<ddprun::UniqueFd> BeginConnect(const std::string& address, const std::string& port);

// No delay for small packets; a machine that vanished is noticed within 13 s.
void Tune(int socket);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_SOCKETS_H_
