#include "tests/support/virtual_clock.h"

namespace ddprun::testing {

TimePoint VirtualClock::Now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

Duration VirtualClock::Left(TimePoint until) const {
  const std::lock_guard lock(mutex_);
  deadlines_.insert(until);
  changed_.notify_all();
  return until > now_ ? kSlice : Duration(0);
}

void VirtualClock::Advance(Duration duration) {
  const std::lock_guard lock(mutex_);
  now_ += duration;
}

bool VirtualClock::AwaitWaitUntil(TimePoint until) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::minutes(1),
                           [&] { return deadlines_.contains(until); });
}

}  // namespace ddprun::testing
