// Time as pure code sees it: points on a monotonic clock that nobody there can read.
#ifndef DDPRUN_RENDEZVOUS_BASE_TIME_H_
#define DDPRUN_RENDEZVOUS_BASE_TIME_H_

#include <chrono>

namespace ddprun {

// A clock without now(): `now` is an argument wherever something is decided.
struct Monotonic {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Monotonic>;
  static constexpr bool is_steady = true;
};

using Duration = Monotonic::duration;
using TimePoint = Monotonic::time_point;

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_TIME_H_
