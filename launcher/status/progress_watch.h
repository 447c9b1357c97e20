// Whether the steps that a program reports advance. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_PROGRESS_WATCH_H_
#define DDPRUN_LAUNCHER_STATUS_PROGRESS_WATCH_H_

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

struct ProgressSeen {
  std::optional<Problem> problem{};
  std::vector<int> behind{};         // all stand, and these at an earlier step than the others
  bool is_new = false;               // it was none at the look before
  std::vector<std::string> lines{};  // it has begun, or ended
};

// No rank that trains has ended a step for hang_timeout and five times the longest step of the
// round, or some have not while the others go on: the problem then names them. While one starts,
// evaluates or writes a checkpoint the others may be right to wait. A rank that a signal has
// stopped for hang_timeout is a problem also where no rank reports steps.
class ProgressWatch {
 public:
  explicit ProgressWatch(JudgePolicy policy) : policy_(policy) {}

  // Whether a hang is why. One that is not confirmed yet keeps the problem from being told, and
  // does not end one that is.
  enum class Explained { kNo, kSoon, kYes };
  // REQUIRES: now never decreases.
  ProgressSeen Look(TimePoint now, const RankIndex& ranks, Explained explained);
  void Forget() {
    over_.clear();
    sight_.reset();
    stopped_since_.clear();
  }

 private:
  // Those that a signal has stopped for hang_timeout, and for how long at least.
  std::vector<int> StoppedRanks(TimePoint now, const RankIndex& ranks, double& for_s);
  std::optional<Problem> Find(TimePoint now, const RankIndex& ranks, std::vector<int>& behind);

  struct Sight {
    TimePoint since{};
    int64_t step = 0;
  };
  // Whether the same step has stood in an earlier look: programs that were suspended go on at once.
  bool IsConfirmed(TimePoint now, int64_t step);

  const JudgePolicy policy_;
  std::optional<Sight> sight_;
  std::map<int, TimePoint> stopped_since_;  // by rank, since the first look that saw it so
  std::string over_;  // what is said when the problem that was told is over; empty: none was
};

// "no rank has used CPU time for 42 s; they wait in futex_wait (3), nanosleep (1)": a fact, for it
// may be meant. Empty: some have, or it is not known.
std::string IdleText(const RankIndex& ranks, const JudgePolicy& policy);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_PROGRESS_WATCH_H_
