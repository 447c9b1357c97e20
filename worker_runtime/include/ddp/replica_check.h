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
  // Steps between two comparisons, the same on all ranks. With 0 the first comparison is after the
  // first step. Then the distance doubles until comparisons cost less than a thousandth of the
  // time. All ranks double at the same steps.
  int64_t every = 0;
  // The parameters are in the communicator's device memory. A kernel hashes them there: nothing is
  // copied to the host. No effect in a group on CPUs.
  bool on_device = false;
};

// Finds replicas that have drifted apart. Causes are a rank that updates with another learning
// rate, a bit that flipped, or a layer that is not registered. Averaging gradients does not remove
// such a difference.
//
// Each rank hashes all its parameters, and sends 8 bytes to the others. Only if these differ, the
// ranks compare the hash of each parameter. On the CPU the hash is XXH3. On a GPU it is a sum of
// SplitMix64's finalizer over the elements and their places. Only Compare() is collective. One
// thread uses the check, which borrows the communicator.
class ReplicaCheck {
 public:
  explicit ReplicaCheck(Communicator& communicator, ReplicaCheckOptions options = {});

  // Counts a step, which all ranks have made. Returns true if Compare() is due, on all of them.
  bool CountStep();
  // Compares the parameters of all ranks. Collective. `parameters` are in host memory, unless the
  // options say otherwise. All ranks give the same number in the same order. On a device the
  // comparison comes after what is on `stream`. NaNs are equal if their bits are. Errors:
  // - DataLoss, the same on all ranks. It names the step, the parameters that differ and the ranks
  //   that differ from a majority. Without a majority it names all groups of ranks. It says what to
  //   look for and from where to resume.
  // - If a rank cannot hash, it gets the driver's error. The others get FailedPrecondition with its
  //   number.
  // - InvalidArgument if ranks have different steps or numbers of parameters. For a negative
  //   `every` only that rank gets it.
  // - The communicator's errors.
  absl::Status Compare(int64_t step, std::span<const Tensor> parameters, Stream stream = nullptr);

  // Steps between two comparisons at present.
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
