// Reduces gradients bucket by bucket while backward still runs.
#ifndef DDPRUN_WORKER_RUNTIME_GRADIENT_REDUCER_H_
#define DDPRUN_WORKER_RUNTIME_GRADIENT_REDUCER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/bucketizer.h"
#include "worker_runtime/reducer_core.h"

namespace ddp::internal {

// When things happened in one synchronised pass.
struct PassRecord {
  using TimePoint = Work::Clock::time_point;
  struct BucketTimes {
    TimePoint launched;  // handed to the communicator
    TimePoint started;   // the communicator began it
    TimePoint ended;
  };
  std::vector<TimePoint> gradient_ready;  // by parameter
  std::vector<BucketTimes> buckets;       // by bucket
};

// Owns the arena in which the gradients of all parameters live, bucket after bucket, and drives a
// ReducerCore: as soon as a bucket and all before it are ready, its average over the ranks starts
// on the communicator's own thread. Used by one thread at a time; borrows the communicator. The
// first failure of a reduction is final: every later call returns it.
class GradientReducer {
 public:
  using Now = std::function<Work::Clock::time_point()>;

  // Collective: allocates the arena, zeroed. `names` and `gradients` by parameter, equal on all
  // ranks, as are the limits. Errors: the communicator's.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(
      Communicator& communicator, std::vector<std::string> names,
      const std::vector<GradientSpec>& gradients, const BucketLimits& limits,
      Now now = &Work::Clock::now);
  // In the middle of a pass this aborts the communicator: the other ranks would wait in vain.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // REQUIRES: 0 <= parameter < number of parameters.
  void* GradientPtr(int parameter) const;
  const BucketLayout& layout() const { return layout_; }

  absl::Status MarkReady(int parameter, Stream stream);
  absl::Status MarkUnsynchronized(int parameter);
  // Waits until every bucket holds the average. A parameter without a gradient aborts the
  // communicator, because this rank will never take part in that bucket's all-reduce.
  absl::Status Finish();
  // FailedPrecondition in the middle of a pass; Unimplemented for device memory.
  absl::Status ZeroGradients();

  // The last pass that Finish ended without an error; empty before it.
  const PassRecord& record() const { return record_; }
  // Whether bucket `bucket` of the present pass was launched and is done.
  bool IsReduced(int bucket) const;

 private:
  GradientReducer(Communicator& communicator, std::vector<std::string> names, BucketLayout layout,
                  std::unique_ptr<Buffer> arena, Now now);
  absl::Status Launch(LaunchRange range, Stream stream);
  absl::Status Fail(absl::Status status);
  absl::Status WaitForLaunched();

  Communicator& communicator_;
  const BucketLayout layout_;
  const std::unique_ptr<Buffer> arena_;  // null when there is nothing to hold
  const Now now_;
  ReducerCore core_;
  absl::Status failure_;

  // The present pass.
  std::vector<std::unique_ptr<Work>> works_;  // by bucket, as far as launched; null: nothing to do
  PassRecord pass_;

  PassRecord record_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GRADIENT_REDUCER_H_
