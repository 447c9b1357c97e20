// What the user may ask for beyond --max_restarts, and what of it a job has used up. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_RESTART_LIMITS_H_
#define DDPRUN_RENDEZVOUS_CORE_RESTART_LIMITS_H_

#include <cstdint>

#include "rendezvous/base/ids.h"

namespace ddprun::rendezvous {

// All are off unless the user asks for them.
struct RestartLimits {
  // The job ends where so many rounds in succession have failed alike; 0: never for that.
  int max_same_failure = 0;
  friend bool operator==(const RestartLimits&, const RestartLimits&) = default;
};

// Beside the restart count. Kept in the job's file: a coordinator that is started again goes on
// from here.
struct RestartsSpent {
  // The last round whose end was charged: no round is charged twice, whichever coordinator hears of
  // its end.
  Epoch charged_epoch;
  Round charged_round;
  // Rounds in succession that failed alike, the last of them with this fingerprint.
  int same_failures = 0;
  uint64_t fingerprint = 0;
  friend bool operator==(const RestartsSpent&, const RestartsSpent&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RESTART_LIMITS_H_
