// The clock that a driver is given. Not for pure code, which takes `now`.
#ifndef DDPRUN_RENDEZVOUS_BASE_CLOCK_H_
#define DDPRUN_RENDEZVOUS_BASE_CLOCK_H_

#include "rendezvous/base/time.h"

namespace ddprun {

// SteadyClock() (steady_clock.h), or virtual time in a test. Calls from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // How long a thread that waits until `until` may block before it looks at Now() again: an hour at
  // most, and never below zero. Virtual time passes by itself for nobody, and says less.
  virtual Duration Left(TimePoint until) const = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_CLOCK_H_
