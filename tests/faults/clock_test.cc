// The time of day is wrong, differently on each machine, and jumps by hours or years.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/apart.h"
#include "tests/faults/bench.h"
#include "tests/faults/wrong_clock.h"

namespace ddprun::testing {
namespace {

constexpr int64_t kHour = 3600;
constexpr int64_t kYears = 20 * 365 * 24 * kHour;

// "03:00:00" of the first line of the log that has `text`; the hour alone.
std::string HourOf(const Subprocess& process, const std::string& text) {
  const std::string err = process.err();
  const size_t at = err.find(text);
  const size_t line = at == std::string::npos ? at : err.rfind("info: ", at);
  return line == std::string::npos ? "" : err.substr(line + 6, 2);
}

std::string JumpClocks(Bench& bench, int64_t by) {
  Job& job = bench.job();
  WrongClock coordinators(job, "coordinator", by);
  WrongClock seconds(job, "second", -by);
  Apart apart(bench, coordinators.env());
  if (!apart.StartNodes({"--max-restarts=2"}, {}, seconds.env())) {
    return "no round forms:" + apart.coordinator().Describe();
  }
  const std::vector<int> pids = apart.Pids();
  coordinators.Jump(-by);
  seconds.Jump(by);
  // For longer than the evict time, 10 s.
  if (Eventually([&] { return apart.Pids() != pids; }, std::chrono::seconds(12))) {
    return "workers are stopped because clocks jump:" + apart.node(0).Describe();
  }
  kill(pids[1], SIGKILL);
  if (!apart.AwaitWorkers(1)) return "no restart:" + apart.node(1).Describe();
  // The two agents' own words date the same moment an hour apart, be it of another year.
  const std::string first = HourOf(apart.node(0), "draining"),
                    second = HourOf(apart.node(1), "draining");
  if (!coordinators.HasFired() || !seconds.HasFired() || first == second) {
    return "the fault did not fire:" + apart.node(1).Describe();
  }
  // The next coordinator begins twice as long before the one that it follows.
  apart.coordinator().Signal(SIGKILL);
  apart.coordinator().Wait();
  if (!apart.StartCoordinator(coordinators.env())) return apart.coordinator().Describe();
  if (!apart.HaveBothSaid("coordinator back")) return "nobody is back:" + apart.node(0).Describe();
  kill(apart.Pids()[0], SIGKILL);
  if (!apart.AwaitWorkers(2)) return "no second restart:" + apart.node(0).Describe();
  return apart.Finish();
}

TEST_CASE("F35: clocks that differ by hours and jump change nothing") {
  CheckHolds([](Bench& bench) { return JumpClocks(bench, kHour); });
}

TEST_CASE("F35, B39: clocks that differ by decades and jump change nothing") {
  CheckHolds([](Bench& bench) { return JumpClocks(bench, kYears + kHour); });
}

}  // namespace
}  // namespace ddprun::testing
