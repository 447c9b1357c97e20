#include "rendezvous/base/steady_clock.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

using namespace std::chrono_literals;

class StoppedClock final : public Clock {
  TimePoint Now() const override { return TimePoint(5s); }
  Duration Left(TimePoint until) const override { return until - Now(); }
};

TEST_CASE("poll timeout: what is left is rounded up, and bounded where it is too long or over") {
  CHECK(PollTimeout(TimePoint(5s + 1500us), StoppedClock()) == 2);  // no limit: pure
  CHECK(PollTimeout(SteadyNow()) == 0);
  CHECK(PollTimeout(SteadyNow() - 1h) == 0);
  CHECK(PollTimeout(SteadyNow() + 1000h) == 3'600'000);
  CHECK(PollTimeout(TimePoint::max()) == -1);
}

}  // namespace
}  // namespace ddprun
