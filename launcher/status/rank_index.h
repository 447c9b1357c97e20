// The ranks of a job, put together from what its nodes saw. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_RANK_INDEX_H_
#define DDPRUN_LAUNCHER_STATUS_RANK_INDEX_H_

#include <string>
#include <vector>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct SeenRank {
  const RankView* view = nullptr;
  const NodeView* node = nullptr;
  double age_s = 0;        // of both
  bool is_silent = false;  // nothing has been heard of its node for long

  bool is_running() const { return view->state == "running"; }
  bool has_ended() const { return view->state == "ended"; }
  // By a signal (SIGSTOP), as far as has been heard.
  bool is_stopped() const { return !is_silent && is_running() && view->wait == "do_signal_stop"; }
};

// Borrows the job, for one look.
class RankIndex {
 public:
  RankIndex(const JobView& job, Duration silent_after);

  // By rank, each once: where two nodes show the same one, as it moved, the newer view counts.
  const std::vector<SeenRank>& all() const { return ranks_; }
  // Null: no node showed it.
  const SeenRank* Find(int rank) const;
  // Those of the round that no node shows, ascending.
  const std::vector<int>& unseen() const { return unseen_; }
  // Of the round; where that is not known, what was seen.
  int world_size() const { return world_size_; }

  // "rank 5 (node gpu-07)", "ranks 4-11 (nodes gpu-01, gpu-02)"; without the node in a job of one.
  // REQUIRES: ascending, not empty.
  std::string Named(const std::vector<int>& ranks) const;

 private:
  std::vector<SeenRank> ranks_;
  std::vector<int> unseen_;
  int world_size_ = 0;
  bool has_many_nodes_ = false;
};

// Those of `ranks` that a signal has stopped.
std::vector<int> StoppedOf(const RankIndex& index, const std::vector<int>& ranks);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_RANK_INDEX_H_
