// What the end of a round costs a job, by its RestartLimits. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_
#define DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/time.h"
#include "rendezvous/core/restart_limits.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What two failures have in common that are the same one, on whatever rank: the exit code or the
// signal, the step that the worker had reported last (none is a step of its own), and the error:
// the first line of what stands in its error file, else how it ended and the last line of its
// stderr, both with all numbers taken for the same one.
uint64_t FingerprintOf(const FailureReport& report);
// `text` with # in place of each number: "rank 3: 0x7f00 took 1.5 s" is "rank #: # took # s".
std::string WithoutNumbers(std::string_view text);

// Longer than this begins the back-off anew.
inline constexpr Duration kLongProgress = std::chrono::minutes(10);
// The longest that a restart waits, unless the user has named a longer time for the first wait.
inline constexpr Duration kLongestBackoff = std::chrono::minutes(5);

// A round has ended by this failure, as the `restart_count`-th that did before it. `spent.progress`
// has what came before this round; from here on it counts anew.
void CountFailure(const RestartLimits& limits, const FailureReport& report, int restart_count,
                  RestartsSpent& spent);
// A round has ended by a loss of a node, or by a preemption, after so long.
void CountLoss(const RestartLimits& limits, bool is_preemption, std::chrono::milliseconds progress,
               int restart_count, RestartsSpent& spent);
// How long the restart after the failure that was counted last waits.
Duration WaitBeforeRestart(const RestartLimits& limits, const RestartsSpent& spent);
// Why the job ends with the loss that was counted last. Empty: it does not.
std::string WhyNoLossMore(const RestartLimits& limits, bool is_preemption,
                          const RestartsSpent& spent);
// Why the job ends with the failure that was counted last, although restarts are left. Empty: it
// does not.
std::string WhyNoRestart(const RestartLimits& limits, const RestartsSpent& spent,
                         const FailureReport& report);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_
