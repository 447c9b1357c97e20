#include "tests/sim/crowd.h"

#include <cstdint>
#include <variant>

#include "tests/sim/sim_random.h"

namespace ddprun::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kStartsASecond = 10'000;
constexpr uint64_t kSeed = 1;
constexpr Duration kAway = seconds(12);  // longer than it takes to count as lost

Duration StartsTake(int nodes) { return Duration(seconds(1)) * nodes / kStartsASecond; }
TimePoint FailsAt(int nodes) { return TimePoint(StartsTake(nodes) + seconds(2)); }
TimePoint KilledAt(int nodes) { return FailsAt(nodes) + seconds(5); }
TimePoint BackAt(int nodes) { return KilledAt(nodes) + kAway; }

Scenario CrowdScenario(int nodes) {
  Scenario scenario;
  scenario.seed = kSeed;
  rendezvous::Policy& policy = scenario.policy;
  policy.run_id = "crowd";
  policy.min_nodes = policy.max_nodes = nodes;
  policy.max_restarts = 1;
  scenario.agent.shutdown_timeout = seconds(1);  // for the workers that do not hear SIGTERM
  scenario.agent.orphan_timeout = policy.orphan_timeout;
  scenario.is_apart = true;
  Random random(Mix(kSeed, 10));
  for (int i = 0; i < nodes; ++i) {
    NodePlan plan;
    plan.start = TimePoint(random.Between(Duration{0}, StartsTake(nodes)));
    plan.clock = SimClock(random.Between(Duration(seconds(1)), Duration(seconds(100'000))),
                          random.Between(-500, 500));
    scenario.nodes.push_back(plan);
  }
  scenario.min_delay = microseconds(100);
  scenario.max_delay = milliseconds(5);
  scenario.work = seconds(20);
  scenario.skew = milliseconds(20);
  scenario.faults = {
      {.at = FailsAt(nodes), .kind = FaultKind::kWorkerFails, .node = nodes / 2, .detail = 7},
      {.at = KilledAt(nodes), .kind = FaultKind::kKillAgent, .node = nodes - 1, .duration = kAway}};
  scenario.heal_at = BackAt(nodes);
  scenario.end_by = scenario.heal_at + scenario.work + policy.join_timeout;
  return scenario;
}

Scenario TakeoverScenario(int nodes, bool is_silent) {
  Scenario scenario = CrowdScenario(nodes);
  scenario.is_apart = false;
  scenario.is_elected = true;
  scenario.policy.min_nodes = 1;
  Fault fault{.at = FailsAt(nodes), .kind = FaultKind::kKillCoordinator};
  if (is_silent) {
    fault.kind = FaultKind::kCutCoordinator;
    fault.duration = std::chrono::hours(1);
    fault.detail = 1;
  }
  scenario.faults = {fault};
  return scenario;
}

template <typename Event>
size_t KindOf() {
  return rendezvous::RendezvousEvent(Event{}).index();
}

}  // namespace

RunResult RunCrowdTakeover(int nodes, bool is_silent) {
  return RunScenario(TakeoverScenario(nodes, is_silent), false);
}

CrowdResult RunCrowd(int nodes) {
  const auto all = static_cast<uint64_t>(nodes);
  const size_t assigned = KindOf<rendezvous::Assigned>(), drained = KindOf<rendezvous::Drained>();
  CrowdResult result;
  result.phases = {{.name = "all start, all have a place", .since = TimePoint{}},
                   {.name = "a worker fails, all are told", .since = FailsAt(nodes)},
                   {.name = "then all have a place", .since = FailsAt(nodes)},
                   {.name = "an agent is killed, the others are told", .since = KilledAt(nodes)},
                   {.name = "it is back, all have a place", .since = BackAt(nodes)}};
  const std::vector<uint64_t> ends = {all, all, 2 * all, 2 * all - 1, 3 * all};
  std::vector<uint64_t> heard(std::variant_size_v<rendezvous::RendezvousEvent>);
  size_t phase = 0;
  Traffic before;
  const Scenario scenario = CrowdScenario(nodes);
  Cluster cluster(scenario, false);
  cluster.set_heard(
      [&](TimePoint now, const rendezvous::RendezvousEvent& event, const Traffic& traffic) {
        ++heard[event.index()];
        if (phase == ends.size()) return;
        const size_t kind = phase == 1 || phase == 3 ? drained : assigned;
        if (heard[kind] < ends[phase]) return;
        result.phases[phase].took = now - result.phases[phase].since;
        result.phases[phase].sent = {traffic.said - before.said, traffic.told - before.told};
        before = traffic;
        ++phase;
      });
  result.run = cluster.Run();
  return result;
}

}  // namespace ddprun::sim
