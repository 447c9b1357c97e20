// What the end of a round costs, and the end of the job where nothing is left to pay it with.
#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/restart_budget.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

bool State::TakeCharge() {
  // Nothing is counted for nobody: the job's file stays one that older releases read.
  if (policy.limits == RestartLimits{}) return false;
  if (spent.charged_epoch == epoch && spent.charged_round == round) return false;
  spent.charged_epoch = epoch;
  spent.charged_round = round;
  return true;
}

void State::ChargeLoss(TimePoint now) {
  const bool is_loss = drain_cause == DrainCause::kLoss;
  const bool is_new = TakeCharge();
  const auto ran = std::chrono::floor<std::chrono::milliseconds>(drained_at - running_since);
  if (is_new && is_loss) CountLoss(policy.limits, is_preemption, ran, restart_count, spent);
  if (is_new && !is_loss) spent.progress += ran;
  std::string why_over;
  if (is_loss) why_over = WhyNoLossMore(policy.limits, is_preemption, spent);
  if (is_loss && IsStartedOnce()) {
    why_over = "no restarts allowed (--max-restarts=0)";
  }
  if (why_over.empty()) {
    if (is_new) WriteRecord();
    OpenRound(now);
    return;
  }
  CloseJob(now, {.exit_code = kRendezvousExitCode,
                 .reason = absl::StrCat(drain_reason, "; ", why_over)});
}

void State::ChargeFailure(TimePoint now) {
  const DatedFailure cause = Cause();
  const FailureReport& report = cause.report;
  last_failure = FactOf(cause);
  // A coordinator before us may have charged this very failure, and died before the next round.
  const int charged = seats.begin()->second.assignment.restart_count + 1;
  if (TakeCharge()) CountFailure(policy.limits, report, charged - 1, spent);
  const std::string limit = WhyNoRestart(policy.limits, spent, report);
  std::string why_over = limit;
  if (why_over.empty() && charged > MaxRestarts()) {
    why_over = policy.max_restarts == 0
                   ? "no restarts allowed"
                   : absl::StrCat("no restarts left of ", policy.max_restarts,
                                  spent.given_back > 0 ? " since they were given back last" : "");
  }
  if (why_over.empty()) {
    restart_count = std::max(restart_count, charged);
    is_restart_due = true;
    WriteRecord();
    drain_reason = FailureText(report);
    OpenRound(now);
    backoff_until = now + WaitBeforeRestart(policy.limits, spent);
    return;
  }
  const std::string early_exit = EarlyExitText(cause);
  CloseJob(now, {.exit_code = report.exit_code,
                 .reason = absl::StrCat(FailureText(report), early_exit.empty() ? "" : "; ",
                                        early_exit, "; ", why_over),
                 .first_failure = report,
                 .early_exit = early_exit,
                 .limit = limit});
}

}  // namespace ddprun::rendezvous
