#include "worker_runtime/comm/nccl/head_clock.h"

#include <doctest/doctest.h>

namespace ddp::internal {
namespace {

HeadClock::TimePoint At(int second) { return HeadClock::TimePoint(std::chrono::seconds(second)); }

TEST_CASE("head clock: after a pause an operation is the first from its call on") {
  HeadClock clock;
  CHECK(clock.See(7, At(10), At(11)) == At(10));
  CHECK(clock.See(7, At(10), At(15)) == At(10));
  clock.SeeNothing();
  CHECK(clock.See(8, At(20), At(21)) == At(20));
}

TEST_CASE("head clock: behind others it is the first once they are done") {
  HeadClock clock;
  CHECK(clock.See(7, At(10), At(11)) == At(10));
  CHECK(clock.See(9, At(10), At(30)) == At(30));
  CHECK(clock.See(9, At(10), At(40)) == At(30));
  CHECK(clock.See(10, At(12), At(50)) == At(50));
}

TEST_CASE("head clock: a number that comes again is another operation") {
  HeadClock clock;
  CHECK(clock.See(7, At(10), At(11)) == At(10));
  CHECK(clock.See(7, At(30), At(31)) == At(30));
}

}  // namespace
}  // namespace ddp::internal
