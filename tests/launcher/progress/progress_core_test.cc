#include "launcher/progress/progress_core.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

namespace ddprun::launcher {
namespace {

using ddp::internal::PackProgress;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kInterval = seconds(5);

TimePoint At(Duration since_start) { return TimePoint{} + since_start; }

// Looks, and lets the server take what is told.
std::optional<ProgressNews> Told(ProgressCore& core, Duration at, int64_t done, int64_t all = 100) {
  const auto news = core.Look(At(at), PackProgress(done, all));
  if (news) CHECK_FALSE(core.Answered(absl::OkStatus()));
  return news;
}

TEST_CASE("progress: nothing is told before the program has said something") {
  ProgressCore core(kInterval);
  for (int at = 0; at < 60; ++at) CHECK_FALSE(core.Look(At(seconds(at)), 0));
  CHECK_FALSE(core.End(0, true));
  CHECK_FALSE(core.End(0, false));
}

TEST_CASE("progress: the first word is told at once, the next ones an interval apart") {
  ProgressCore core(kInterval);
  CHECK(core.next_look() == TimePoint{});
  std::vector<int> told_at;
  for (int ms = 0; ms < 20000; ms += 100) {
    if (Told(core, milliseconds(ms), 1 + ms, 100000)) told_at.push_back(ms);
  }
  CHECK(told_at == std::vector<int>{0, 5000, 10000, 15000});
  CHECK(core.next_look() == At(seconds(20)));
}

TEST_CASE("progress: a round that begins anew gets no request of its own before its time") {
  ProgressCore core(kInterval);
  REQUIRE(Told(core, seconds(0), 1));
  core.BeginRound();
  CHECK_FALSE(Told(core, seconds(3), 2));
  CHECK(Told(core, seconds(5), 2));
}

TEST_CASE("progress: what has not changed is not told again") {
  ProgressCore core(kInterval);
  REQUIRE(Told(core, seconds(0), 7));
  CHECK_FALSE(Told(core, seconds(5), 7));
  CHECK(Told(core, seconds(10), 8));
}

TEST_CASE("progress: while a request is under way there is no other, and then the newest") {
  ProgressCore core(kInterval);
  REQUIRE(core.Look(At(seconds(0)), PackProgress(1, 100)));
  CHECK_FALSE(core.Look(At(seconds(5)), PackProgress(2, 100)));
  CHECK_FALSE(core.Look(At(seconds(10)), PackProgress(3, 100)));
  CHECK_FALSE(core.Answered(absl::OkStatus()));
  CHECK(core.Look(At(seconds(15)), PackProgress(3, 100))->percent == 3);
}

TEST_CASE("progress: the time that is left follows from the steps seen, rounded up") {
  ProgressCore core(kInterval);
  CHECK(Told(core, seconds(0), 10) == ProgressNews{10, std::nullopt});
  CHECK(Told(core, seconds(5), 20) == ProgressNews{20, 40});
  CHECK(Told(core, seconds(10), 90) == ProgressNews{90, 2});  // 1.25
  CHECK(Told(core, seconds(15), 100) == ProgressNews{99, 0});
}

TEST_CASE("progress: a pause and a restart do not count as time of the steps") {
  ProgressCore core(kInterval);
  REQUIRE(Told(core, seconds(0), 10));
  REQUIRE(Told(core, seconds(5), 20));
  core.BeginRound();
  CHECK_FALSE(Told(core, seconds(900), 20));  // the page still holds the old round's word
  CHECK(Told(core, seconds(905), 30) == ProgressNews{30, std::nullopt});
  CHECK(Told(core, seconds(910), 40) == ProgressNews{40, 30});
}

TEST_CASE("progress: it falls where the program goes back, and the time is counted from there") {
  ProgressCore core(kInterval);
  REQUIRE(Told(core, seconds(0), 10));
  REQUIRE(Told(core, seconds(5), 50));
  CHECK(Told(core, seconds(10), 40) == ProgressNews{40, std::nullopt});
  CHECK(Told(core, seconds(15), 50) == ProgressNews{50, 25});
}

TEST_CASE("progress: the numbers stay within what the server takes") {
  ProgressCore core(kInterval);
  REQUIRE(Told(core, seconds(0), 0, 4'000'000'000));
  const auto news = Told(core, seconds(5), 1, 4'000'000'000);
  CHECK(news == ProgressNews{0, std::numeric_limits<int32_t>::max()});
  CHECK(Told(core, seconds(10), 3'999'999'999, 4'000'000'000)->percent == 99);
}

TEST_CASE("progress: a job that is done at its first word has no time left") {
  ProgressCore core(kInterval);
  CHECK(Told(core, seconds(0), 3, 3) == ProgressNews{99, 0});
}

TEST_CASE(
    "progress: 100 is a success's, whatever was said last, and a failure stays where it was") {
  ProgressCore core(kInterval);
  REQUIRE(Told(core, seconds(0), 10));
  CHECK(core.End(PackProgress(40, 100), true) == ProgressNews{100, 0});
  CHECK(core.End(PackProgress(40, 100), false) == ProgressNews{40, std::nullopt});
  CHECK(core.End(PackProgress(100, 100), false) == ProgressNews{99, std::nullopt});
}

TEST_CASE("progress: what was not heard is told again, and each kind of failure to the user once") {
  ProgressCore core(kInterval);
  const uint64_t word = PackProgress(1, 100);
  REQUIRE(core.Look(At(seconds(0)), word));
  CHECK(core.Answered(absl::UnavailableError("refused")));
  CHECK_FALSE(core.Look(At(seconds(4)), word));
  REQUIRE(core.Look(At(seconds(5)), word));
  CHECK_FALSE(core.Answered(absl::UnavailableError("refused again")));
  REQUIRE(core.Look(At(seconds(10)), word));
  CHECK(core.Answered(absl::PermissionDeniedError("403")));
  REQUIRE(core.Look(At(seconds(15)), word));
  CHECK_FALSE(core.Answered(absl::OkStatus()));
  CHECK_FALSE(core.Look(At(seconds(20)), word));
}

TEST_CASE("progress: the body is the server's JSON, without a time left where none is known") {
  CHECK(ProgressBody({.percent = 40}, "2025-01-31T12:00:00.123Z") ==
        R"({"trainerStatus":{"progressPercentage":40,)"
        R"("lastUpdatedTime":"2025-01-31T12:00:00.123Z"}})");
  CHECK(ProgressBody({.percent = 100, .remaining_seconds = 0}, "T") ==
        R"({"trainerStatus":{"progressPercentage":100,"estimatedRemainingSeconds":0,)"
        R"("lastUpdatedTime":"T"}})");
}

}  // namespace
}  // namespace ddprun::launcher
