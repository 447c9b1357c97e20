// The simulator itself, and 10,000 seeds of the whole control plane in it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/sim/cluster.h"
#include "tests/sim/crowd.h"
#include "tests/sim/scenario.h"
#include "tests/sim/seeds.h"
#include "tests/sim/timeline.h"

namespace ddprun::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 500;  // instrumented code is several times slower
constexpr uint64_t kElectedSeeds = 200;
#else
constexpr uint64_t kSeeds = 10'000;
constexpr uint64_t kElectedSeeds = 3'000;
#endif

TEST_CASE("timeline: what happens, happens in order of time, then of planning") {
  Timeline timeline;
  std::string order;
  timeline.After(seconds(2), [&] { order += "c"; });
  timeline.After(seconds(1), [&] {
    order += "a";
    timeline.After(seconds(1), [&] { order += "d"; });
    timeline.At(TimePoint{}, [&] { order += "b"; });  // planned for the past: now
  });
  while (timeline.RunNext(TimePoint(seconds(2)))) {
  }
  CHECK(order == "abcd");
  CHECK(timeline.now() == TimePoint(seconds(2)));
}

TEST_CASE("sim clock: a time that it reads is found to the nanosecond, at any rate") {
  for (const int ppm : {-10'000, -1, 0, 3, 9'999}) {
    const SimClock clock(seconds(77'777), ppm);
    TimePoint last = clock.Read(TimePoint{});
    for (int64_t ns = 1; ns < 200'000'000'000; ns = ns * 3 + 7) {
      const TimePoint read = clock.Read(TimePoint(Duration(ns)));
      CHECK(read >= last);
      last = read;
      const TimePoint when = clock.WhenReads(read);
      CHECK(clock.Read(when) >= read);
      CHECK(clock.Read(when - Duration(1)) < read);
    }
  }
  // One hour at 1 % too fast is 36 s more.
  CHECK(SimClock(Duration{0}, 10'000).Read(TimePoint(std::chrono::hours(1))) ==
        TimePoint(std::chrono::hours(1) + seconds(36)));
}

TEST_CASE("sim: a seed runs alike every time, and no two seeds do") {
  std::vector<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Scenario scenario = DrawScenario(seed, 0);
    const RunResult once = RunScenario(scenario, false);
    const RunResult again = RunScenario(DrawScenario(seed, 0), false);
    CHECK(once.hash == again.hash);
    CHECK(once.steps == again.steps);
    for (const uint64_t other : hashes) CHECK(other != once.hash);
    hashes.push_back(once.hash);
  }
}

TEST_CASE("sim: until a fault strikes, a run does not depend on it") {
  Scenario scenario = DrawScenario(3, 4);
  scenario.faults = {{.at = TimePoint(seconds(20)), .kind = FaultKind::kBreakStream, .node = 1}};
  scenario.end_by = TimePoint(seconds(19));
  const uint64_t with = RunScenario(scenario, false).hash;
  scenario.faults.clear();
  CHECK(RunScenario(scenario, false).hash == with);
}

TEST_CASE("sim: a run that does not end in time is a breach, and needs no fault") {
  Scenario scenario = DrawScenario(1, 2);
  scenario.work = seconds(1000);
  scenario.faults.push_back(
      {.at = TimePoint(milliseconds(5)), .kind = FaultKind::kBreakStream, .node = 1});
  scenario.end_by = TimePoint(seconds(100));
  const RunResult result = RunScenario(scenario, false);
  REQUIRE(!result.breaches.empty());
  CHECK(result.breaches.front().substr(0, 3) == "P7:");
  CHECK(Minimise(scenario).faults.empty());
}

TEST_CASE("sim: the control plane keeps its promises in every seed") {
  SeedRange range{.count = kSeeds};
  CHECK(RunSeeds(range) == 0);
  // What was to be seen was seen often.
  const auto often = [](int in_thousand) { return in_thousand * static_cast<int>(kSeeds) / 1000; };
  CHECK(range.tally.rounds > often(550));
  CHECK(range.tally.successes > often(200));
  CHECK(range.tally.failures > often(30));
  CHECK(range.tally.given_up > often(30));
  CHECK(range.tally.losses > often(30));
  CHECK(range.tally.readopted > often(50));
  CHECK(range.tally.restarts > often(50));
  CHECK(range.tally.stops > often(10));
  CHECK(range.tally.given_back > 0);
  CHECK(range.tally.limited > often(2));
  CHECK(range.tally.bad_nodes > often(4));
  CHECK(range.tally.arrivals > often(50));
  CHECK(range.tally.made_room > often(5));
}

TEST_CASE("sim: with etcd it keeps them in every seed while the leaders go and come") {
  SeedRange range{.count = kElectedSeeds, .is_elected = true};
  CHECK(RunSeeds(range) == 0);
  const auto often = [](int in_thousand) {
    return in_thousand * static_cast<int>(kElectedSeeds) / 1000;
  };
  CHECK(range.tally.rounds > often(550));
  CHECK(range.tally.successes > often(200));
  CHECK(range.tally.takeovers > often(300));
  CHECK(range.tally.readopted > often(150));
  CHECK(range.tally.restarts > often(30));
}

// Something resets a node's connection while the name server is slow.
TEST_CASE("sim: whoever knows the way back needs no resolver for it") {
  Scenario scenario = DrawScenario(1, 3);
  scenario.is_apart = true;
  scenario.is_one_host = scenario.has_next_job = false;
  scenario.policy.is_static = false;
  scenario.policy.min_nodes = scenario.policy.max_nodes = 3;
  scenario.policy.max_restarts = 0;
  scenario.names_take = seconds(5);
  scenario.min_delay = std::chrono::microseconds(100);
  scenario.max_delay = milliseconds(5);
  scenario.spike = Duration{0};
  scenario.work = seconds(40);
  scenario.nodes.resize(3);
  for (NodePlan& node : scenario.nodes) {
    node.start = TimePoint{};
    node.node_rank = -1;
  }
  const TimePoint at(seconds(20));
  scenario.faults = {{.at = at, .kind = FaultKind::kBreakStream, .node = 1}};
  scenario.heal_at = at + seconds(1);
  const RunResult result = RunScenario(scenario, false);
  for (const std::string& breach : result.breaches) MESSAGE(breach);
  CHECK(result.breaches.empty());
  CHECK(result.tally.rounds == 1);
  CHECK(result.tally.losses == 0);
  CHECK(result.tally.successes == 1);
}

// Three nodes with etcd. The leader's is cut off from the others for long, and not from etcd.
TEST_CASE(
    "sim: the nodes that reach each other go on, and not a leader that is cut off from them") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = DrawScenario(seed, 3, /*is_elected=*/true);
    scenario.policy = {
        .run_id = "job1", .min_nodes = 2, .max_nodes = 3, .max_restarts = 0, .limits = {}};
    scenario.agent.health_pause.reset();
    scenario.policy.last_call = seconds(5);
    scenario.policy.join_timeout = seconds(30);
    scenario.nodes.resize(3);
    scenario.has_next_job = false;
    for (NodePlan& plan : scenario.nodes) plan.start = TimePoint{};
    scenario.work = seconds(60);
    scenario.skew = Duration{0};
    scenario.faults = {{.at = TimePoint(seconds(20)),
                        .kind = FaultKind::kCutCoordinator,
                        .duration = seconds(180)}};
    scenario.heal_at = TimePoint(seconds(200));
    scenario.end_by = TimePoint(seconds(600));
    const RunResult result = RunScenario(scenario, false);
    CAPTURE(seed);
    CHECK(result.breaches.empty());
    CHECK(result.tally.rounds == 2);  // of three nodes, and of two
    CHECK(result.tally.successes == 1);
  }
}

TEST_CASE("sim: with etcd a seed runs alike every time") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RunResult once = RunScenario(DrawScenario(seed, 0, true), false);
    CHECK(once.hash == RunScenario(DrawScenario(seed, 0, true), false).hash);
  }
}

TEST_CASE("sim: a takeover among 4096 nodes costs etcd few reads of each and few writes of all") {
  constexpr uint64_t kNodes = 4096;
  for (const bool is_silent : {false, true}) {
    CAPTURE(is_silent);
    const RunResult result = RunCrowdTakeover(kNodes, is_silent);
    CHECK(result.breaches.empty());
    CHECK(result.tally.takeovers == 1);
    CHECK(result.tally.successes >= 1);
    MESSAGE("reads ", result.etcd.reads, ", writes ", result.etcd.writes);
    CHECK(result.etcd.reads <= 8 * kNodes);
    CHECK(result.etcd.writes <= kNodes / 4);
  }
}

// The times are virtual: no load of this machine is in them.
TEST_CASE("sim: a job of many nodes keeps them as well, in few messages") {
  constexpr int kNodes = 600;
  const CrowdResult crowd = RunCrowd(kNodes);
  CHECK(crowd.run.breaches.empty());
  CHECK(crowd.run.tally.rounds == 3);
  CHECK(crowd.run.tally.losses == kNodes - 1);  // so many are told of it
  CHECK(crowd.run.tally.successes == 1);
  for (const CrowdPhase& phase : crowd.phases) {
    CAPTURE(phase.name);
    CHECK(phase.took > Duration{0});
    CHECK(phase.took < seconds(3));
    CHECK(phase.sent.said <= 2 * kNodes);
    CHECK(phase.sent.told <= 4 * kNodes);
  }
}

}  // namespace
}  // namespace ddprun::sim
