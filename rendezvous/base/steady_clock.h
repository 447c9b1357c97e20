// The one place where drivers read the clock that pure code is handed. Not for pure code.
#ifndef DDPRUN_RENDEZVOUS_BASE_STEADY_CLOCK_H_
#define DDPRUN_RENDEZVOUS_BASE_STEADY_CLOCK_H_

#include <algorithm>
#include <chrono>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/time.h"

namespace ddprun {

inline TimePoint SteadyNow() {
  return TimePoint(std::chrono::steady_clock::now().time_since_epoch());
}

// Of programs, which hand it to their drivers.
inline const Clock& SteadyClock() {
  class Steady final : public Clock {
    TimePoint Now() const override { return SteadyNow(); }
    Duration Left(TimePoint until) const override {
      return std::clamp<Duration>(until - SteadyNow(), Duration(0), std::chrono::hours(1));
    }
  };
  static const Clock& clock = *new Steady;  // for threads that outlive main(), too
  return clock;
}

inline std::chrono::steady_clock::time_point ToSteady(TimePoint at) {
  return std::chrono::steady_clock::time_point(at.time_since_epoch());
}

// What is left until `until`, for poll and epoll_wait: rounded up, an hour at most. The greatest
// point of all is no deadline: -1.
inline int PollTimeout(TimePoint until, const Clock& clock = SteadyClock()) {
  if (until == TimePoint::max()) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(clock.Left(until)).count());
}

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_STEADY_CLOCK_H_
