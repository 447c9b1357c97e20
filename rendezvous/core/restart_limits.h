// What the user may ask for beyond --max_restarts, and what of it a job has used up. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_RESTART_LIMITS_H_
#define DDPRUN_RENDEZVOUS_CORE_RESTART_LIMITS_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// All are off unless the user asks for them.
struct RestartLimits {
  // The job ends where so many rounds in succession have failed alike; 0: never for that.
  int max_same_failure = 0;
  // How many rounds may end because a node was lost, or because one was told to end; empty: any
  // number.
  std::optional<int> max_node_losses = {};
  std::optional<int> max_preemptions = {};
  // How long the second restart in a row waits, each further one twice as long; 0: none waits.
  Duration backoff{0};
  // After so long of progress all restarts, losses and preemptions are given back; 0: never.
  Duration budget_period{0};
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
  // Rounds in succession that failed before they had made long progress.
  int failures_in_row = 0;
  // Since the last round that was charged.
  std::chrono::milliseconds progress{0};
  int given_back = 0;  // of the restart count, which goes on counting: so many are allowed more
  int node_losses = 0, preemptions = 0;  // charged, and not given back
  friend bool operator==(const RestartsSpent&, const RestartsSpent&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RESTART_LIMITS_H_
