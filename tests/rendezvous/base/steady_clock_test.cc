#include "rendezvous/base/steady_clock.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

using namespace std::chrono_literals;

TEST_CASE("poll timeout: what is left is rounded up, and bounded where it is too long or over") {
  const TimePoint now{5s};
  CHECK(PollTimeout(now + 1500us, now) == 2);  // no limit: pure
  CHECK(PollTimeout(now, now) == 0);
  CHECK(PollTimeout(now - 1h, now) == 0);
  CHECK(PollTimeout(now + 1000h, now) == 3'600'000);
  CHECK(PollTimeout(TimePoint::max(), now) == -1);
}

}  // namespace
}  // namespace ddprun
