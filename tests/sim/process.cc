#include "tests/sim/process.h"

#include <utility>

namespace ddprun::sim {

void Process::Enter(std::function<void()> work) {
  if (!is_alive_) return;
  if (is_paused_) {
    backlog_.push_back(std::move(work));
    return;
  }
  work();
  if (is_alive_) AfterWork();
}

void Process::Resume() {
  if (!is_alive_ || !is_paused_) return;
  is_paused_ = false;
  for (auto& work : std::exchange(backlog_, {})) {
    if (is_alive_) work();
  }
  if (is_alive_) AfterWork();
}

void Process::Die() {
  is_alive_ = false;
  is_paused_ = false;
  backlog_.clear();
}

void Process::ArmTimer(std::optional<TimePoint> local) {
  if (local == armed_for_) return;
  armed_for_ = local;
  const uint64_t number = ++timer_;
  if (!local) return;
  timeline_.At(clock_.WhenReads(*local), [this, number] {
    if (number != timer_ || !is_alive_) return;
    armed_for_.reset();
    Enter([] {});
  });
}

}  // namespace ddprun::sim
