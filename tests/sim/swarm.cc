// A seed becomes a scenario: which faults there are, and how many, is drawn first, so that the runs
// differ in kind and not only in number.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_random.h"

namespace ddprun::sim {
namespace {

// A steady clock runs at the rate that the kernel gives it, which adjtimex(2) turns by at most 500
// ppm; twice that, for clocks that are bad as well.
constexpr int kMostDriftPpm = 1'000;

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

SimClock DrawClock(Random& random) {
  return SimClock(random.Between(Duration(seconds(1)), Duration(seconds(100'000))),
                  random.Between(-kMostDriftPpm, kMostDriftPpm));
}

rendezvous::Policy DrawPolicy(Random& random, int max_nodes) {
  rendezvous::Policy policy;
  policy.run_id = "job1";
  policy.max_nodes = max_nodes;
  policy.min_nodes = random.Chance(40) ? max_nodes : random.Between(1, max_nodes);
  policy.max_restarts = random.Chance(30) ? 0 : random.Between(1, 3);
  policy.last_call = milliseconds(random.Between(0, 4) * 750);
  // Longer than an agent needs to come back: a look of 5 s, a wait of 2 s, and a message or two.
  policy.evict_after = seconds(random.Between(10, 12));
  policy.join_timeout = seconds(random.Between(20, 60));
  policy.orphan_timeout = seconds(random.Between(30, 60));
  policy.is_static = random.Chance(15);
  if (policy.is_static) {
    policy.min_nodes = policy.max_nodes;
    policy.static_master_addr = "n0";
    policy.static_master_port = 29500;
  }
  return policy;
}

// How often each kind of fault strikes in this run; most runs know only some kinds.
struct Rates {
  FaultKind kind;
  int weight;
};
// With etcd the coordinator suffers as one that runs apart does, and etcd, too.
std::vector<Rates> DrawRates(Random& random, const Scenario& scenario) {
  const bool is_apart = scenario.is_apart || scenario.is_elected;
  const FaultKind common[] = {
      FaultKind::kBreakStream, FaultKind::kHalfBreak,   FaultKind::kCutNode,
      FaultKind::kCutUp,       FaultKind::kCutDown,     FaultKind::kCutCoordinator,
      FaultKind::kPauseAgent,  FaultKind::kKillAgent,   FaultKind::kSignalAgent,
      FaultKind::kWorkerFails, FaultKind::kWorkerKilled};
  const FaultKind apart[] = {FaultKind::kPauseCoordinator, FaultKind::kKillCoordinator,
                             FaultKind::kLoseFile};
  // A run in which only the coordinator suffers shows whether anybody notices.
  const bool only_coordinator = is_apart && random.Chance(30);
  std::vector<Rates> rates;
  if (!only_coordinator) {
    for (const FaultKind kind : common) {
      if (random.Chance(40)) rates.push_back({kind, random.Between(1, 4)});
    }
  } else {
    rates.push_back({FaultKind::kBreakStream, 1});
    rates.push_back({FaultKind::kCutCoordinator, 1});
  }
  if (is_apart) {
    for (const FaultKind kind : apart) {
      if (random.Chance(50)) rates.push_back({kind, random.Between(1, 4)});
    }
  }
  if (scenario.is_elected) {
    for (const FaultKind kind :
         {FaultKind::kSilentEtcd, FaultKind::kSlowEtcd, FaultKind::kCutFromEtcd}) {
      if (random.Chance(50)) rates.push_back({kind, random.Between(1, 4)});
    }
  }
  return rates;
}

Duration DrawDuration(Random& random, FaultKind kind) {
  const Duration shorter = random.Between(Duration(milliseconds(10)), Duration(seconds(3)));
  const Duration longer = random.Between(Duration(seconds(3)), Duration(seconds(30)));
  switch (kind) {
    case FaultKind::kKillAgent:
      return random.Chance(30) ? Duration{0} : shorter;
    case FaultKind::kSignalAgent:
      return random.Chance(50) ? Duration{0} : shorter;
    default:
      return random.Chance(60) ? shorter : longer;
  }
}

std::vector<Fault> DrawFaults(Random& random, const Scenario& scenario) {
  std::vector<Fault> faults;
  const std::vector<Rates> rates = DrawRates(random, scenario);
  int total = 0;
  for (const Rates& rate : rates) total += rate.weight;
  const int count = total == 0 ? 0 : random.Between(0, 12);
  for (int i = 0; i < count; ++i) {
    int pick = random.Between(1, total);
    FaultKind kind = FaultKind::kBreakStream;
    for (const Rates& rate : rates) {
      if ((pick -= rate.weight) > 0) continue;
      kind = rate.kind;
      break;
    }
    Fault fault;
    fault.at = TimePoint(random.Between(Duration(0), scenario.heal_at.time_since_epoch()));
    fault.kind = kind;
    fault.node = random.Between(0, static_cast<int>(scenario.nodes.size()) - 1);
    fault.duration = DrawDuration(random, kind);
    const int local_rank =
        random.Between(0, scenario.nodes[static_cast<size_t>(fault.node)].local_world_size - 1);
    const int signals[] = {9, 6, 15, 1};
    fault.detail = local_rank * 256 + (kind == FaultKind::kWorkerKilled ? signals[random.Below(4)]
                                                                        : random.Between(2, 119));
    faults.push_back(fault);
  }
  std::sort(faults.begin(), faults.end(),
            [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return faults;
}

// Some leaders that are killed stay so; some cuts are from etcd as well.
void AdaptFaults(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 9));
  for (Fault& fault : scenario.faults) {
    switch (fault.kind) {
      case FaultKind::kKillCoordinator:
        if (random.Chance(30)) fault.duration = Duration{0};
        continue;
      case FaultKind::kCutCoordinator:
      case FaultKind::kCutNode:
      case FaultKind::kCutUp:
      case FaultKind::kCutDown:
      case FaultKind::kSilentEtcd:
        fault.detail = random.Between(0, 1);
        continue;
      default:
        continue;
    }
  }
}

void AddFault(const Fault& fault, Scenario& scenario) {
  const auto later = std::upper_bound(scenario.faults.begin(), scenario.faults.end(), fault,
                                      [](const Fault& a, const Fault& b) { return a.at < b.at; });
  scenario.faults.insert(later, fault);
}

// In some runs, from a stream of its own: two nodes refuse each other, mostly for long.
void DrawRefusal(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 12));
  if (scenario.nodes.size() < 2 || !random.Chance(15)) return;
  Fault refusal;
  refusal.at = TimePoint(random.Between(Duration(0), scenario.heal_at.time_since_epoch()));
  refusal.kind = FaultKind::kRefuse;
  refusal.node = random.Between(0, static_cast<int>(scenario.nodes.size()) - 1);
  refusal.duration = random.Between(Duration(seconds(1)), Duration(seconds(60)));
  AddFault(refusal, scenario);
}

// In some runs, once. From a stream of its own: the others are as they would be without.
void DrawStop(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 7));
  if (!random.Chance(12)) return;
  Fault stop;
  stop.at = TimePoint(random.Between(Duration(0), scenario.heal_at.time_since_epoch()));
  stop.kind = FaultKind::kOrderStop;
  stop.node = random.Between(0, static_cast<int>(scenario.nodes.size()) - 1);
  stop.detail = random.Chance(25) ? 1 : random.Chance(25) ? 2 : 0;
  AddFault(stop, scenario);
}

// Likewise, of a coordinator that runs apart.
void DrawLag(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 11));
  if (!scenario.is_apart || !random.Chance(25)) return;
  Fault lag;
  lag.at = TimePoint(random.Between(Duration(0), scenario.heal_at.time_since_epoch()));
  lag.kind = FaultKind::kLagCoordinator;
  lag.duration = seconds(random.Between(15, 60));
  lag.detail = random.Between(800, 2900);
  AddFault(lag, scenario);
}

// The name server is slow, or the first of several is dead, in some runs without etcd.
void DrawNames(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 13));
  if (scenario.is_elected || !random.Chance(15)) return;
  scenario.names_take = milliseconds(random.Between(5, 5000));
}

// In some runs a node has the usual evict time, and the job one that is shorter than a usual beat.
// Nothing else goes wrong there but workers: the time is too short for the rest.
void DrawOwnPolicy(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 14));
  if (scenario.is_elected || !random.Chance(6)) return;
  scenario.policy.evict_after = milliseconds(random.Between(400, 900));
  const int nodes = static_cast<int>(scenario.nodes.size());
  scenario.nodes[static_cast<size_t>(random.Between(0, nodes - 1))].evict_after = seconds(10);
  scenario.max_delay = milliseconds(5);
  scenario.spike = scenario.names_take = Duration{0};
  std::erase_if(scenario.faults, [](const Fault& fault) {
    return fault.kind != FaultKind::kWorkerFails && fault.kind != FaultKind::kWorkerKilled &&
           fault.kind != FaultKind::kOrderStop;
  });
}

// In some runs, from a stream of its own as well.
void DrawLimits(uint64_t seed, rendezvous::Policy& policy) {
  Random random(Mix(seed, 8));
  rendezvous::RestartLimits& limits = policy.limits;
  if (random.Chance(25)) limits.max_same_failure = random.Between(2, 3);
  if (random.Chance(15)) limits.max_node_losses = random.Between(0, 2);
  if (random.Chance(15)) limits.max_preemptions = random.Between(0, 2);
  if (random.Chance(25)) limits.backoff = milliseconds(random.Between(500, 4000));
  if (random.Chance(25)) limits.budget_period = seconds(random.Between(2, 20));
}

// Likewise: some hosts flap, or all by mistake.
void DrawBadNodes(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 10));
  if (!random.Chance(25)) return;
  rendezvous::BadNodeRules& rules = scenario.policy.bad_nodes;
  rules.has_check = random.Chance(75);
  if (rules.has_check) {
    rules.check_timeout = seconds(random.Between(1, 4));
    rules.refuses_unknown = random.Chance(20);
    scenario.agent.health_pause = rules.check_timeout;
    scenario.agent.is_health_measured = random.Chance(25);
    const int percent = random.Chance(80) ? random.Between(10, 100) : 0;
    for (NodePlan& plan : scenario.nodes) {
      if (random.Chance(30)) plan.bad_percent = percent;
    }
  }
  if (!rules.has_check || random.Chance(50)) rules.max_failures = random.Between(0, 1);
  if (rules.max_failures) rules.failure_rounds = random.Between(2, 6);
  rules.quarantine = seconds(random.Between(1, 60));
  rules.max_bad_nodes = random.Between(0, 4);
}

// Likewise: nodes come in a burst to a job that runs, and one of the hosts may come and go.
void DrawArrivals(uint64_t seed, Scenario& scenario) {
  Random random(Mix(seed, 14));
  rendezvous::Policy& policy = scenario.policy;
  if (policy.is_static || policy.max_nodes < 2 || !random.Chance(35)) return;
  policy.min_nodes = random.Between(1, policy.max_nodes - 1);
  policy.scale_up = static_cast<rendezvous::ScaleUp>(random.Between(0, 2));
  scenario.polls_stop = random.Chance(80);
  const Duration first = policy.last_call + seconds(random.Between(1, 15));
  const size_t count = scenario.nodes.size();
  for (size_t i = static_cast<size_t>(policy.min_nodes); i < count; ++i) {
    const Duration after = random.Between(Duration{0}, Duration(seconds(4)));
    scenario.nodes[i].start = TimePoint(first + after);
  }
  if (!random.Chance(40)) return;
  const int node = random.Between(1, static_cast<int>(count) - 1);
  Duration at = first;
  for (int i = 0; i < 3; ++i) {
    at += seconds(random.Between(3, 15));
    if (TimePoint(at) > scenario.heal_at) return;
    AddFault({.at = TimePoint(at),
              .kind = FaultKind::kKillAgent,
              .node = node,
              .duration = milliseconds(random.Between(100, 4000))},
             scenario);
  }
}

}  // namespace

Scenario DrawScenario(uint64_t seed, int node_count, bool is_elected) {
  Random random(Mix(seed, 1));
  Scenario scenario;
  scenario.seed = seed;
  const int max_nodes = node_count > 0 ? node_count : random.Between(1, random.Chance(10) ? 8 : 4);
  scenario.policy = DrawPolicy(random, max_nodes);
  scenario.is_elected = is_elected;
  if (is_elected) scenario.policy.is_static = false;
  scenario.is_apart = !scenario.policy.is_static && random.Chance(60);
  scenario.is_one_host = !scenario.is_apart && !scenario.policy.is_static && random.Chance(25);
  scenario.has_next_job = random.Chance(20);
  scenario.keeps_file = random.Chance(60) || is_elected;
  if (is_elected) scenario.is_apart = scenario.is_one_host = false;
  scenario.coordinator_clock = DrawClock(random);
  launcher::AgentPolicy& agent = scenario.agent;
  agent.shutdown_timeout = seconds(random.Between(1, 5));
  agent.orphan_timeout = scenario.policy.orphan_timeout;
  agent.exit_barrier_timeout = seconds(random.Between(20, 40));
  const int spares = scenario.policy.is_static || random.Chance(60) ? 0 : random.Between(1, 2);
  const bool comes_late = random.Chance(30);
  for (int i = 0; i < max_nodes + spares; ++i) {
    NodePlan plan;
    plan.start = TimePoint(random.Between(Duration(0), Duration(milliseconds(500))));
    if (comes_late && random.Chance(30)) plan.start += seconds(random.Between(1, 30));
    plan.local_world_size = random.Between(1, 3);
    plan.clock = DrawClock(random);
    plan.is_stubborn = random.Chance(15);
    if (scenario.policy.is_static) plan.node_rank = i;
    scenario.nodes.push_back(plan);
  }
  scenario.min_delay = microseconds(100);
  scenario.max_delay = random.Chance(70) ? milliseconds(5) : milliseconds(random.Between(20, 400));
  scenario.spike = random.Chance(50) ? Duration(0) : milliseconds(random.Between(200, 800));
  scenario.work = seconds(random.Between(2, 60));
  scenario.skew = random.Chance(70) ? milliseconds(20) : milliseconds(random.Between(500, 8000));
  scenario.follow_percent = random.Chance(70) ? random.Between(20, 100) : 0;
  scenario.says_left_peer = random.Chance(50);
  // Not drawn: seeds keep the scenarios that they had.
  scenario.follows_by_abort = !scenario.says_left_peer && seed % 2 == 1;
  scenario.max_follow_delay = milliseconds(random.Chance(50) ? 150 : random.Between(200, 3000));
  scenario.heal_at = TimePoint(seconds(random.Between(5, 60)));
  scenario.faults = DrawFaults(random, scenario);
  if (is_elected) AdaptFaults(seed, scenario);
  if (is_elected) DrawRefusal(seed, scenario);
  DrawStop(seed, scenario);
  DrawLag(seed, scenario);
  DrawNames(seed, scenario);
  DrawOwnPolicy(seed, scenario);
  DrawLimits(seed, scenario.policy);
  DrawBadNodes(seed, scenario);
  DrawArrivals(seed, scenario);
  // Whatever the state at the time of healing: a few rounds, each with its waits.
  const rendezvous::Policy& policy = scenario.policy;
  const Duration round = policy.evict_after + agent.shutdown_timeout + policy.last_call +
                         scenario.work + scenario.skew + seconds(30) + 4 * policy.limits.backoff;
  scenario.end_by = scenario.heal_at + 2 * policy.join_timeout + policy.orphan_timeout +
                    agent.exit_barrier_timeout + 4 * round;
  // Each bad node may end a round, and the checks of others are waited for.
  const rendezvous::BadNodeRules& rules = policy.bad_nodes;
  if (rules != rendezvous::BadNodeRules{}) {
    scenario.end_by += (rules.max_bad_nodes + 1) * (round + rules.check_timeout + seconds(40));
  }
  // Each node that comes may end a round.
  scenario.end_by += static_cast<int>(scenario.nodes.size()) * round;
  // Restarts that are given back again and again wait longer and longer.
  if (policy.limits.backoff > Duration{0}) scenario.end_by += std::chrono::minutes(5);
  return scenario;
}

}  // namespace ddprun::sim
