// Whether the steps that a program reports advance. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_PROGRESS_WATCH_H_
#define DDPRUN_LAUNCHER_STATUS_PROGRESS_WATCH_H_

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
  std::vector<std::string> lines{};  // it has begun, or ended
};

// No rank that trains has ended a step for hang_timeout and five times the longest step of the
// round, or some have not while the others go on: the problem then names them. While one starts,
// evaluates or writes a checkpoint the others may be right to wait. A rank that a signal has
// stopped for hang_timeout is a problem also where no rank reports steps.
class ProgressWatch {
 public:
  explicit ProgressWatch(JudgePolicy policy) : policy_(policy) {}

  // `is_explained`: a hang is why, or may be soon.
  ProgressSeen Look(const RankIndex& ranks, bool is_explained);
  void Forget() { over_.clear(); }

 private:
  std::optional<Problem> Find(const RankIndex& ranks) const;

  const JudgePolicy policy_;
  std::string over_;  // what is said when the problem that was told is over; empty: none was
};

// "no rank has used CPU time for 42 s; they wait in futex_wait (3), nanosleep (1)": a fact, for it
// may be meant. Empty: some have, or it is not known.
std::string IdleText(const RankIndex& ranks, const JudgePolicy& policy);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_PROGRESS_WATCH_H_
