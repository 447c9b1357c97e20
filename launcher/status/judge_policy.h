// What the judge of a job goes by, and what it finds for --on_hang. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_JUDGE_POLICY_H_
#define DDPRUN_LAUNCHER_STATUS_JUDGE_POLICY_H_

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct JudgePolicy {
  // How long ranks wait in a collective, or no step ends, before that is a hang. 0: never.
  Duration hang_timeout = std::chrono::seconds(30);
  // Before a rank's first step, which may compile the model, as long as it uses the CPU.
  Duration first_step_patience = std::chrono::minutes(10);
  // A shorter wait is not worth the waiting line.
  Duration waiting_notice_delay = std::chrono::seconds(2);
  // What a node last said is that old: it is silent, and what its ranks do is not known.
  Duration silent_after = std::chrono::seconds(10);
  // Nothing is stuck, and no rank slow, by what one look has seen.
  Duration confirmed_after = std::chrono::seconds(1);
  int straggler_looks = 3;
  Duration straggler_delay = std::chrono::seconds(10);
  // So long it must be as fast as the others before it is none, and as long the same is not said
  // again.
  Duration calm = std::chrono::seconds(60);
};

// A hang that stands, or steps that do, in every look at which they do.
struct HangFound {
  bool is_new = false;     // it was not there at the look before
  std::vector<int> ranks;  // to blame, ascending; empty: all have come, or it is not known
  std::string text;        // the problem's
  // False: a rank evaluates or writes a checkpoint, or is not heard of, or only steps stand.
  bool may_restart = true;
  friend bool operator==(const HangFound&, const HangFound&) = default;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_JUDGE_POLICY_H_
