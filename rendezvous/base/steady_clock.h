// The one place where drivers read the clock that pure code is handed. Not for pure code.
#ifndef DDPRUN_RENDEZVOUS_BASE_STEADY_CLOCK_H_
#define DDPRUN_RENDEZVOUS_BASE_STEADY_CLOCK_H_

#include <chrono>

#include "rendezvous/base/time.h"

namespace ddprun {

inline TimePoint SteadyNow() {
  return TimePoint(std::chrono::steady_clock::now().time_since_epoch());
}

inline std::chrono::steady_clock::time_point ToSteady(TimePoint at) {
  return std::chrono::steady_clock::time_point(at.time_since_epoch());
}

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_STEADY_CLOCK_H_
