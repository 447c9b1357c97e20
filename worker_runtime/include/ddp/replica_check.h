// Whether all ranks still have the same weights.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_REPLICA_CHECK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_REPLICA_CHECK_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"
#include "ddp/communicator.h"

namespace ddp {

// Equal on all ranks.
struct ReplicaCheckOptions {
  // Steps between two comparisons, the same on all ranks. 0: a comparison after the first step, and
  // then twice as many steps between them until they cost less than a thousandth of the time, alike
  // on all ranks.
  int64_t every = 0;
  // The parameters lie in the communicator's device memory, where a kernel hashes them: nothing is
  // copied to the host. Without effect in a group on CPUs.
  bool on_device = false;
};

// Finds replicas that have drifted apart: a rank that updates with another learning rate, a bit
// that flipped, a layer that is not registered. What is averaged makes no such difference go away.
// Each rank hashes all its parameters, 8 bytes for the others; only where these differ each
// parameter's hash is compared: XXH3 on the CPU, on a GPU a sum of SplitMix64's finalizer over the
// elements and their places. Not collective but for Compare(). Used by one thread; borrows the
// communicator.
class ReplicaCheck {
 public:
  explicit ReplicaCheck(Communicator& communicator, ReplicaCheckOptions options = {});

  // Counts a step, which all ranks have made. True: Compare() is due, on all of them.
  bool CountStep();
  // Collective. `parameters` lie in host memory, unless the options say otherwise, the same number
  // in the same order on all ranks; on a device what is on `stream` comes first. NaNs are equal
  // when their bits are. DataLoss, the same on all ranks, names the step, the parameters that
  // differ and the ranks that stand against a majority, or all groups of ranks where there is none,
  // and says what to look for and from where to resume. Where a rank cannot hash it has the
  // driver's error, and the others FailedPrecondition naming it. InvalidArgument for other steps or
  // numbers of parameters on different ranks, and for a negative `every`, alone on its rank;
  // otherwise the communicator's errors.
  absl::Status Compare(int64_t step, std::span<const Tensor> parameters, Stream stream = nullptr);

  // Steps between two comparisons, as of now.
  int64_t every() const { return every_; }

 private:
  using Clock = std::chrono::steady_clock;
  absl::StatusOr<std::vector<int64_t>> HashEach(std::span<const Tensor> parameters, Stream stream);
  absl::Status Locate(int64_t step, std::span<const Tensor> parameters,
                      const std::vector<int64_t>& mine);
  void Grow(int64_t cost_ns, int64_t interval_ns);

  Communicator& communicator_;
  const bool on_device_;
  const bool grows_;
  const bool is_wrong_;                      // the options are
  std::unique_ptr<TensorHash> device_hash_;  // null before the first comparison
  int64_t every_;
  int64_t steps_ = 0;        // since the last comparison
  int64_t last_equal_ = -1;  // step; -1: none
  Clock::time_point compared_at_ = Clock::now();
  Clock::duration last_exchange_{0};  // what the communication of the last comparison took
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_REPLICA_CHECK_H_
