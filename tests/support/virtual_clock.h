// Time that passes only when a test says so, for drivers that are given a clock.
#ifndef DDPRUN_TESTS_SUPPORT_VIRTUAL_CLOCK_H_
#define DDPRUN_TESTS_SUPPORT_VIRTUAL_CLOCK_H_

#include <condition_variable>
#include <mutex>
#include <set>

#include "rendezvous/base/clock.h"

namespace ddprun::testing {

// A driver blocks in poll, epoll or a condition variable of its own, which no clock can wake. So it
// is told to look again after kSlice of real time: how long that takes changes nothing but the
// test's duration. Calls from any thread.
class VirtualClock final : public Clock {
 public:
  static constexpr Duration kSlice = std::chrono::milliseconds(2);  // no limit: between looks

  TimePoint Now() const override;
  Duration Left(TimePoint until) const override;

  void Advance(Duration duration);
  // Until somebody waits until just then, or has done so before: a driver that computes another
  // deadline is found out, although kSlice wakes it. False: nobody came in a minute.
  bool AwaitWaitUntil(TimePoint until) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::set<TimePoint> deadlines_;  // of all waits so far
  TimePoint now_{std::chrono::hours(1)};
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_VIRTUAL_CLOCK_H_
