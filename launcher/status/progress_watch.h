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
// round. While one starts, evaluates or writes a checkpoint the others may be right to wait.
class ProgressWatch {
 public:
  explicit ProgressWatch(JudgePolicy policy) : policy_(policy) {}

  // `is_explained`: a hang is why, or may be soon.
  ProgressSeen Look(const RankIndex& ranks, bool is_explained);
  void Forget() { is_told_ = false; }

 private:
  const JudgePolicy policy_;
  bool is_told_ = false;
  double for_s_ = 0;
};

// "no rank has used CPU time for 42 s; they wait in futex_wait (3), nanosleep (1)": a fact, for it
// may be meant. Empty: some have, or it is not known.
std::string IdleText(const RankIndex& ranks, const JudgePolicy& policy);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_PROGRESS_WATCH_H_
