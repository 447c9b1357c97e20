// Which ranks are slow for long enough to be named. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_STRAGGLER_WATCH_H_
#define DDPRUN_LAUNCHER_STATUS_STRAGGLER_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/judge_policy.h"
#include "launcher/status/rank_index.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct StragglersSeen {
  std::optional<Problem> problem{};
  std::vector<std::string> lines{};  // what is new of them
};

// Slow is what ddp::SlowRanks says, of all ranks that train: by so much more than the median of
// what a step takes by itself that the job would gain. It must be so in several looks with steps
// between them, and is no longer after a minute without.
class StragglerWatch {
 public:
  explicit StragglerWatch(JudgePolicy policy) : policy_(policy) {}

  // REQUIRES: now never decreases.
  StragglersSeen Look(TimePoint now, const RankIndex& ranks);
  // A round begins: what was slow need not be.
  void Forget();

 private:
  struct Sight {
    TimePoint first, last;
    int looks = 0;
    int64_t step = 0;  // at the last of them
    double self_s = 0;
    double usual_s = 0;  // the others'
    double core_wait_share = 0;
  };
  void See(TimePoint now, const std::vector<const SeenRank*>& training);
  bool IsConfirmed(const Sight& sight) const;
  std::string Text(const RankIndex& ranks, const std::vector<int>& slow) const;

  const JudgePolicy policy_;
  std::map<int, Sight> sights_;  // by rank
  std::vector<int> told_;        // slow at the look before
  std::optional<TimePoint> told_at_;
  std::string told_names_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_STRAGGLER_WATCH_H_
