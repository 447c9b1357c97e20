#include "launcher/process/leftover_watch.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "launcher/process/guardian.h"
#include "launcher/process/helper_pids.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/leftovers.h"

namespace ddprun::launcher {
namespace {

// The end of what is looked at is our SIGCHLD in nearly every case; the exception is a helper whose
// parent lives in another session. The pause is as long as nothing has happened yet, within these.
constexpr Duration kShortestPause = std::chrono::milliseconds(20);
constexpr Duration kLongestPause = std::chrono::seconds(1);
// On a machine where some process ends in every walk.
constexpr int kMostWalks = 3;

bool AreHelpersThere() {
  const auto held = HoldHelpers();
  return !Helpers().empty();
}

}  // namespace

LeftoverWatch::LeftoverWatch(const ProcessTable& table, Signs signs, Duration grace)
    : table_(table), signs_(std::move(signs)), grace_(grace) {}

void LeftoverWatch::Begin() {
  are_told_ = false;
  keep_until_ = TimePoint::min();
  kill_at_ = kNever;
}

void LeftoverWatch::Postpone(Duration pause) {
  if (kill_at_ != kNever) kill_at_ += pause;
  if (keep_until_ != TimePoint::min()) keep_until_ += pause;
}

bool LeftoverWatch::AreLeft(TimePoint now) {
  if (!HasChildren()) return false;
  const bool are_kept = now < keep_until_;
  const int signal = IsOver(now) ? SIGKILL : are_told_ || are_kept ? 0 : SIGTERM;
  if (kill_at_ == kNever && !are_kept) kill_at_ = now + grace_;
  // A signal to all takes a walk. To watch those that were told does not: each of them is or has an
  // ancestor that is our child, and all our children are of the job, unless we were started with
  // some or run a helper. Where we were or do, the cgroup answers as long as one is where it was
  // born.
  const bool are_all_ours = !table_.had_children_at_start() && !AreHelpersThere();
  if (signal == 0 && (are_all_ours || (signs_.cgroup != nullptr && signs_.cgroup->IsPopulated()))) {
    return true;
  }
  const int found = Tell(signal);
  // The other children were there before this job, or have ended and will be reaped in a moment.
  return found > 0;
}

// What a process that ended under our eyes has started meanwhile may not have been seen: where
// nobody else is there we look again at once, else what is there then is told at the next look.
int LeftoverWatch::Tell(int signal) {
  Vanished vanished;
  const auto held = HoldHelpers();
  std::vector<pid_t> helpers = Helpers();
  helpers.push_back(0);
  const LeftoverQuery query{.mark = signs_.job_mark.c_str(),
                            .cgroup = signs_.cgroup != nullptr ? signs_.cgroup->name().c_str() : "",
                            .parent = table_.had_children_at_start() ? 0 : getpid(),
                            .exiting_parent = getpid(),
                            .vanished = &vanished,
                            .spare = signs_.guardian != nullptr ? signs_.guardian->pid() : 0,
                            .helpers = helpers.data(),
                            .proc = signs_.proc};
  int found = 0;
  for (int walk = 0; walk < kMostWalks; ++walk) {
    vanished = {};
    found = SignalLeftovers(query, signal);
    if (found > 0 || !vanished.is_any) break;
  }
  if (signal == SIGTERM) SignalLeftovers(query, SIGCONT);
  if (signal != 0 || are_told_) are_told_ = !vanished.is_ours;
  return found;
}

TimePoint LeftoverWatch::LookAt(TimePoint now, TimePoint quiet_since) const {
  if (kill_at_ <= now) quiet_since = std::max(quiet_since, kill_at_);
  const TimePoint at = now + std::clamp(now - quiet_since, kShortestPause, kLongestPause);
  const TimePoint next = keep_until_ > now ? keep_until_ : kill_at_;
  return next > now ? std::min(at, next) : at;
}

}  // namespace ddprun::launcher
