// What a process group asks of the communicator that it owns.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "ddp/communicator.h"

namespace ddp::internal {

class GroupCommunicator : public Communicator {
 public:
  // Tells the peers that this rank goes in order, once nothing is under way. Later calls fail.
  virtual void Leave() = 0;
};

// What a communicator on GPUs asks, besides, of the one under it for host memory.
class HostCommunicator : public GroupCommunicator {
 public:
  // error() with its mark, and told to nobody (left_peer.h).
  virtual absl::Status MarkedError() const = 0;
  // LeftPeerNote's.
  virtual absl::Status Told(absl::Status status) = 0;
  // Abort() over what `left_peer` caused. A call of Abort() is this rank's own doing.
  virtual void AbortFor(const std::string& reason, std::optional<int> left_peer) = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_
