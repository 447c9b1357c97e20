// What the ranks of a Join tell each other before each thing that all must do.
#ifndef DDPRUN_WORKER_RUNTIME_JOIN_ROUNDS_H_
#define DDPRUN_WORKER_RUNTIME_JOIN_ROUNDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"

namespace ddp::internal {

// What a rank is about to do. A rank that has joined follows the others.
enum class JoinAct : int32_t { kJoined, kPass, kBuffers };

// One all-gather of a number per rank before each act: ranks that have joined learn what to follow,
// and all learn how many are still active. In host memory, also in a group on GPUs: the host
// decides by it what it launches.
class JoinRounds {
 public:
  // `divides_by_initial`: this rank's choice, which all must have made alike.
  JoinRounds(Communicator& communicator, bool divides_by_initial)
      : communicator_(communicator),
        divides_by_initial_(divides_by_initial),
        last_active_(communicator.world_size() - 1) {}

  struct Round {
    JoinAct act = JoinAct::kJoined;  // kJoined: no rank is active any more
    int active_count = 0;
  };
  // Collective. Errors: the communicator's; FailedPrecondition, which ends the group in the
  // same words on all ranks, where two are about to do different things, or divide by different
  // numbers; FailedPrecondition on this rank alone in a captured step.
  absl::StatusOr<Round> Next(JoinAct mine);

  // The highest rank that was active in the last round with one: its model is everybody's in the
  // end, and its buffers are while it is active, as in PyTorch.
  int last_active() const { return last_active_; }

 private:
  absl::Status End(const std::string& why);

  Communicator& communicator_;
  const bool divides_by_initial_;
  int last_active_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_JOIN_ROUNDS_H_
