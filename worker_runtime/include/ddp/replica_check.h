// Whether all ranks still have the same weights.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_REPLICA_CHECK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_REPLICA_CHECK_H_

#include <chrono>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "ddp/checkpoint.h"
#include "ddp/communicator.h"

namespace ddp {

struct ReplicaCheckOptions {
  // Steps between two comparisons, at least 1. 0: a comparison after the first step, and then twice
  // as many steps between them until they cost less than a thousandth of the time, alike on all
  // ranks.
  int64_t every = 0;
};

// Finds replicas that have drifted apart: a rank that updates with another learning rate, a bit
// that flipped, a layer that is not registered. What is averaged makes no such difference go away.
// Each rank hashes all its parameters, 8 bytes for the others; only where these differ each
// parameter's hash is compared. Not collective but for Compare(). Used by one thread; borrows the
// communicator.
class ReplicaCheck {
 public:
  explicit ReplicaCheck(Communicator& communicator, ReplicaCheckOptions options = {});

  // Counts a step, which all ranks have made. True: Compare() is due, on all of them.
  bool CountStep();
  // Collective. `parameters` lie in host memory, the same number in the same order on all ranks;
  // NaNs are equal when their bits are. DataLoss, the same on all ranks, names the step, the
  // parameters that differ and the ranks that stand against a majority, or all groups of ranks
  // where there is none; otherwise the communicator's errors.
  absl::Status Compare(int64_t step, std::span<const Tensor> parameters);

  // Steps between two comparisons, as of now.
  int64_t every() const { return every_; }

 private:
  using Clock = std::chrono::steady_clock;
  absl::Status Locate(int64_t step, std::span<const Tensor> parameters);
  void Grow(int64_t cost_ns, int64_t interval_ns);

  Communicator& communicator_;
  const bool grows_;
  int64_t every_;
  int64_t steps_ = 0;        // since the last comparison
  int64_t last_equal_ = -1;  // step; -1: none
  Clock::time_point compared_at_ = Clock::now();
  Clock::duration last_exchange_{0};  // what the communication of the last comparison took
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_REPLICA_CHECK_H_
