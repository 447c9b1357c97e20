#include "launcher/process/strays.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/process/guardian.h"
#include "launcher/process/job_cgroup.h"

namespace ddprun::launcher {

Strays::Strays(const ProcessTable& table, Signs signs, Duration grace)
    : table_(table), signs_(std::move(signs)), grace_(grace) {}

void Strays::Begin() {
  is_killed_ = false;
  are_told_ = false;
  kill_at_.reset();
}

void Strays::KillAt(TimePoint at) { kill_at_ = std::min(kill_at_.value_or(at), at); }

void Strays::Postpone(Duration pause) {
  if (kill_at_) *kill_at_ += pause;
}

bool Strays::AreLeft(TimePoint now) {
  if (!table_.HasChildren()) return false;
  const int signal = IsOver(now) ? SIGKILL : are_told_ ? 0 : SIGTERM;
  if (!kill_at_) kill_at_ = now + grace_;
  const LeftoverQuery query = Query();
  const int found = SignalLeftovers(query, signal);
  if (signal == SIGTERM) SignalLeftovers(query, SIGCONT);
  are_told_ = true;
  // Children that are ours by no sign were there before us, or are zombies about to be swept.
  return found > 0;
}

LeftoverQuery Strays::Query() const {
  return LeftoverQuery{.mark = signs_.job_mark.c_str(),
                       .cgroup = signs_.cgroup != nullptr ? signs_.cgroup->name().c_str() : "",
                       .parent = table_.had_children_at_start() ? 0 : getpid(),
                       .spare = signs_.guardian != nullptr ? signs_.guardian->pid() : 0};
}

}  // namespace ddprun::launcher
