#include "launcher/process/survivors.h"

#include <string>

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

// Of which there are none in /proc.
constexpr pid_t kNobody = 1 << 30;

TEST_CASE("survivors: they are told of once after five seconds and given up after a minute") {
  SurvivorWatch watch(60s);
  const TimePoint killed{100s};
  CHECK(watch.next_at() == TimePoint::max());

  CHECK_FALSE(watch.IsGivenUp(killed, true));
  CHECK(watch.TakeNotice(killed + 4s, {}) == "");
  CHECK(watch.next_at() == killed + 5s);
  CHECK_FALSE(watch.IsGivenUp(killed + 5s, true));
  CHECK(watch.TakeNotice(killed + 5s, {{.rank = 3, .pid = kNobody}}) ==
        "rank 3 (pid 1073741824) lives on 5 s after SIGKILL: the kernel holds it or another user "
        "owns it; given up after 60 s");
  CHECK(watch.TakeNotice(killed + 6s, {{.rank = 3, .pid = kNobody}}) == "");

  CHECK(watch.next_at() == killed + 60s);
  CHECK_FALSE(watch.IsGivenUp(killed + 59s, true));
  CHECK(watch.IsGivenUp(killed + 60s, true));
  CHECK(watch.GivenUpText({}) ==
        "processes of this node's workers live on 60 s after SIGKILL: the kernel holds them or "
        "another user owns them");
}

TEST_CASE("survivors: a suspension does not count, and what is not killed begins anew") {
  SurvivorWatch watch(60s);
  const TimePoint killed{100s};
  CHECK_FALSE(watch.IsGivenUp(killed, true));
  watch.Postpone(30s);
  CHECK_FALSE(watch.IsGivenUp(killed + 60s, true));
  CHECK(watch.IsGivenUp(killed + 90s, true));

  CHECK_FALSE(watch.IsGivenUp(killed + 91s, false));
  CHECK(watch.next_at() == TimePoint::max());
  CHECK_FALSE(watch.IsGivenUp(killed + 92s, true));
  CHECK(watch.next_at() == killed + 97s);
}

TEST_CASE("survivors: of many the first are named") {
  SurvivorWatch watch(200ms);
  std::vector<Survivor> many;
  for (int rank = 0; rank < 6; ++rank) many.push_back({.rank = rank, .pid = kNobody + rank});
  CHECK(watch.GivenUpText(many) ==
        "rank 0 (pid 1073741824), rank 1 (pid 1073741825), rank 2 (pid 1073741826), "
        "rank 3 (pid 1073741827) and 2 more live on 200 ms after SIGKILL: the kernel holds them or "
        "another user owns them");
  CHECK_FALSE(watch.IsGivenUp(TimePoint{1s}, true));
  CHECK(watch.next_at() == TimePoint{1200ms});
}

}  // namespace
}  // namespace ddprun::launcher
