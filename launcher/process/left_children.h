// What workers leave that have ended with 0: who it is, and how long it may go on.
#ifndef DDPRUN_LAUNCHER_PROCESS_LEFT_CHILDREN_H_
#define DDPRUN_LAUNCHER_PROCESS_LEFT_CHILDREN_H_

#include <sys/types.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/process/leftovers.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// A process that a worker has left.
struct LeftChild {
  pid_t pid = 0;
  std::string name;      // as the kernel calls it
  int rank = -1;         // -1: its environment does not tell
  bool has_gpu = false;  // it has a device of a GPU open
};

// What is told of `children` that had not ended when the time of --keep_children was over.
std::string OverdueChildrenText(const std::vector<LeftChild>& children, Duration keep);
// What is told of `children`, which their workers left: who they are, and what becomes of them.
// `keep`: of --keep_children.  REQUIRES: not empty.
std::string LeftChildrenText(const std::vector<LeftChild>& children, Duration keep);

// Those that `query` finds, by one walk over /proc, but for the `living` workers and what has one
// of them among its ancestors. `has_gpu` is looked up if `is_gpu_wanted`.
std::vector<LeftChild> FindLeftChildren(LeftoverQuery query, const std::set<pid_t>& living,
                                        bool is_gpu_wanted);

// Those of one run of a worker group. They may go on for `keep` (--keep_children; 0: none) after
// their worker, but for those that have a GPU open, which the next job may need. Tells of those
// of each rank once, but not of what ends by itself a moment after its worker, as helpers of Python
// do.
class LeftChildren {
 public:
  // What ends within this time after its worker is neither told of nor signalled.
  static constexpr Duration kSettle = std::chrono::milliseconds(100);

  // `grace`: from SIGTERM to SIGKILL for those that may not go on.
  LeftChildren(Duration keep, Duration grace) : keep_(keep), grace_(grace) {}

  void Begin();
  // Time in which nothing could run counts for nothing.
  void Postpone(Duration pause);
  // How long what a worker leaves that ended with 0 gets no signal.
  Duration patience() const { return std::max(keep_, kSettle); }
  // A worker has ended with 0.
  void WorkerEnded(TimePoint at) {
    look_at_.insert(at + kSettle);
    keep_until_ = at + keep_;
  }
  // When to look next; TimePoint::max(): never.
  TimePoint next_at() const;
  // If it is time, looks at those that `query` finds, by the job's mark, and that no one of the
  // `living` workers has started. Returns the lines to tell.
  std::vector<std::string> Look(TimePoint now, const LeftoverQuery& query,
                                const std::set<pid_t>& living);

 private:
  // How often those that go on are looked at: one may open a GPU later.
  static constexpr Duration kLookAgain = std::chrono::seconds(1);

  const Duration keep_;
  const Duration grace_;
  std::set<TimePoint> look_at_;
  std::set<int> told_ranks_;
  TimePoint keep_until_{};              // of the last that has ended
  std::map<pid_t, TimePoint> kill_at_;  // of those with a GPU
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_LEFT_CHILDREN_H_
