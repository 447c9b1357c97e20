// The bookkeeping of one backward pass: which gradients are ready, which buckets may start. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_REDUCER_CORE_H_
#define DDPRUN_WORKER_RUNTIME_REDUCER_CORE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/bucketizer.h"

namespace ddp::internal {

// Buckets [begin, end), to be launched in this order.
struct LaunchRange {
  int begin = 0;
  int end = 0;
};

// A pass: MarkReady once for every parameter, in any order, then Finish. Buckets are launched
// strictly in index order, also when a later one is complete first: that alone keeps the ranks'
// collectives matched without talking. Passes without synchronisation leave no trace here.
class ReducerCore {
 public:
  // `names` by parameter; `buckets` name every parameter exactly once.
  ReducerCore(std::vector<std::string> names, const std::vector<Bucket>& buckets);

  // The gradient of `parameter` is complete. Returns the buckets that may now be launched, often
  // none. Errors, after which nothing has changed: InvalidArgument for an unknown parameter;
  // FailedPrecondition for one marked ready too often or left out, or when the previous pass was
  // not finished.
  absl::StatusOr<LaunchRange> MarkReady(int parameter);

  // A pass without synchronisation marks `parameter`. Errors: as MarkReady; FailedPrecondition in
  // the middle of a pass that is synchronised.
  absl::Status MarkUnsynchronized(int parameter) const;

  // From the next pass on these parameters, by number, never get a gradient, and no bucket waits
  // for them. REQUIRES: not in a pass; once.
  void LeaveOut(const std::vector<bool>& is_left_out);

  // The first pass may mark a parameter any number of times, and launches nothing before
  // MarkRestReady(). Every later one marks it as often, and the last mark makes it ready. REQUIRES:
  // before the first pass.
  void CountMarks();

  // From the next pass on. REQUIRES: not in a pass; they name every parameter exactly once.
  void SetBuckets(const std::vector<Bucket>& buckets);

  // The order in which the gradients of the present pass have come, or of the last one between
  // passes; behind them those that have not, from the last parameter to the first.
  std::vector<int> ArrivalOrder() const;

  // Counts the parameters that are not ready yet as ready: they get no gradient in this pass.
  // Returns the buckets that were not launched, all of which may be now.
  LaunchRange MarkRestReady();

  // Ends the pass. FailedPrecondition names the parameters that were not marked ready; the pass
  // is over all the same.
  absl::Status Finish();

  // Forgets the present pass, if there is one.
  void Abandon();

  // Some gradients of the present pass were marked, or all are and Finish has not been called.
  bool is_in_pass() const { return ready_count_ > 0 || !marks_.empty(); }
  bool is_complete() const { return ready_count_ == used_count_; }

 private:
  absl::Status CheckMayMark(int parameter) const;
  absl::Status MarkedTooOften(int parameter) const;
  void Count();
  int MarksDue(int parameter) const;
  std::string MissingNames() const;

  const std::vector<std::string> names_;
  std::vector<int> bucket_of_;     // by parameter
  std::vector<bool> is_left_out_;  // by parameter
  std::vector<int> marks_due_;     // in a pass, by parameter; empty: one
  bool is_counting_ = false;
  std::vector<int> bucket_sizes_;  // parameters that are not left out, by bucket
  int used_count_ = 0;             // of all such parameters

  // The present pass.
  std::vector<int> marks_;      // by parameter; empty before the first
  std::vector<bool> is_ready_;  // by parameter
  std::vector<int> pending_;    // parameters not yet ready, by bucket
  int ready_count_ = 0;
  int next_bucket_ = 0;  // the first that was not launched

  std::vector<int> arrivals_;  // one a mark; of the last pass until the next begins
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_REDUCER_CORE_H_
