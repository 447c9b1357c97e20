#include "tests/sim/random_agents.h"

#include <cstdio>
#include <random>
#include <utility>

#include "tests/rendezvous/core/machine_view.h"

namespace ddprun::rendezvous::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

Policy RandomAgents::RandomPolicy(const Draw& draw) {
  Policy policy;
  policy.run_id = "job1";
  policy.min_nodes = 1 + static_cast<int>(draw() % 4);
  policy.max_nodes = policy.min_nodes + static_cast<int>(draw() % 3);
  policy.max_restarts = static_cast<int>(draw() % 4);
  policy.last_call = milliseconds(draw() % 3 * 1500);
  policy.join_timeout = seconds(20 + draw() % 60);
  policy.evict_after = seconds(3 + draw() % 8);
  policy.is_static = draw() % 5 == 0;
  if (draw() % 2 == 0) policy.scale_up = static_cast<ScaleUp>(draw() % 3);
  RestartLimits& limits = policy.limits;
  if (draw() % 4 == 0) limits.max_same_failure = 2 + static_cast<int>(draw() % 2);
  if (draw() % 4 == 0) limits.max_node_losses = static_cast<int>(draw() % 3);
  if (draw() % 4 == 0) limits.max_preemptions = static_cast<int>(draw() % 3);
  if (draw() % 4 == 0) limits.backoff = milliseconds(500 + draw() % 2000);
  if (draw() % 4 == 0) limits.budget_period = seconds(1 + draw() % 4);
  if (draw() % 3 == 0) {
    BadNodeRules& rules = policy.bad_nodes;
    rules.has_check = draw() % 2 == 0;
    if (rules.has_check) rules.check_timeout = seconds(1 + draw() % 5);
    if (rules.has_check) rules.refuses_unknown = draw() % 2 == 0;
    if (!rules.has_check || draw() % 2 == 0) rules.max_failures = static_cast<int>(draw() % 2);
    if (rules.max_failures) rules.failure_rounds = 1 + static_cast<int>(draw() % 5);
    rules.quarantine = seconds(1 + draw() % 30);
    rules.max_bad_nodes = static_cast<int>(draw() % 4);
  }
  if (policy.is_static) {
    policy.min_nodes = policy.max_nodes;
    policy.static_master_addr = "head";
    policy.static_master_port = 29500;
  }
  return policy;
}

RandomAgents::RandomAgents(uint64_t seed, bool is_loud)
    : RandomAgents([random = std::mt19937_64(seed)]() mutable { return random(); }, is_loud) {}

RandomAgents::RandomAgents(Draw draw, bool is_loud)
    : is_loud_(is_loud),
      draw_(std::move(draw)),
      job_(RandomPolicy(draw_),
           Beginning{.epoch = Epoch{2 + Below(2)}, .instance = {7, 1}, .verdict = {}}) {
  const int nodes = job_.policy().max_nodes + static_cast<int>(Below(3));
  const bool has_endpoint = Below(3) != 0;
  const bool is_one_host = Below(4) == 0;
  for (int i = 0; i < nodes; ++i) {
    NodeJoined& hello = job_.node("n" + std::to_string(i)).hello;
    hello.node.local_world_size = 1 + static_cast<int>(Below(4));
    hello.node.role = Below(2) == 0 ? "trainer" : "reader";
    hello.node.is_endpoint_node = has_endpoint && i == 0;
    if (is_one_host) hello.source_addr = hello.accepted_addr = "127.0.0.1";
    if (has_endpoint && i == 0) hello.source_addr = hello.accepted_addr = "";
    if (job_.policy().is_static) hello.node.node_rank = i % job_.policy().max_nodes;
    if (!job_.policy().is_static && Below(4) == 0) {
      hello.node.node_rank = static_cast<int>(Below(nodes));
    }
  }
}

std::string RandomAgents::AnyName() { return "n" + std::to_string(Below(job_.nodes().size())); }

void RandomAgents::Misbehave(int actions) {
  for (int i = 0; i < actions; ++i) {
    ActOnce();
    ++tally_.steps;
    Count();
  }
}

void RandomAgents::ActOnce() {
  const std::string name = AnyName();
  if (Below(300) == 0) return OrderStop(name);
  if (job_.policy().bad_nodes.has_check && Below(20) == 0) {
    return job_.Feed(HealthChecked{job_.node(name).stamp(), {AnyHealth(), "by chance"}});
  }
  switch (Below(12)) {
    case 0:
    case 1:
    case 2:
      return Come(name);
    case 3:
    case 4:
      return Report(name);
    case 5:
      return Below(4) == 0 ? Lie(name) : LetTimePass();
    case 6:
      if (job_.node(name).is_connected) job_.Break(name, Below(2) == 0);
      return;
    case 7:
      if (job_.node(name).is_connected && Below(3) == 0) job_.Leave(name, "chance", Below(2) == 0);
      return;
    case 8:
      job_.node(name).is_silent = Below(3) == 0;
      return;
    case 9:
      if (Below(3) == 0) return Restart();
      job_.Feed(VerdictAcked{job_.node(name).stamp()});
      return;
    default:
      return LetTimePass();
  }
}

void RandomAgents::Restart() {
  job_.Restart(Below(2) == 0);
  ++tally_.restarts;
}

void RandomAgents::Come(const std::string& name) {
  FakeNode& node = job_.node(name);
  node.is_refused = false;
  // Mostly as an agent would: attach while workers live, join when they are gone.
  if (job_.policy().bad_nodes.has_check) node.hello.node.health.health = AnyHealth();
  const bool is_running = node.has_workers && !(node.must_stop && Below(2) == 0) && Below(8) != 0;
  job_.Join(name, is_running, Below(6) == 0);
}

// Mostly good: of nodes that flap.
Health RandomAgents::AnyHealth() {
  const uint64_t any = Below(20);
  return any == 0 ? Health::kBad : any == 1 ? Health::kUnknown : Health::kHealthy;
}

void RandomAgents::Report(const std::string& name) {
  const FakeNode& node = job_.node(name);
  if (!node.has_workers) return;
  switch (Below(5)) {
    case 0: {
      WorkersFailed failed{.stamp = node.stamp(), .report = {}, .age = milliseconds(Below(500))};
      failed.report.node = node.hello.node.id;
      failed.report.host = node.hello.node.host;
      failed.report.rank = node.first_rank;
      if (Below(3) == 0) failed.report.left_peer = static_cast<int>(Below(8));
      if (Below(3) == 0) failed.report.signal = 6;
      if (Below(3) == 0) failed.report.has_own_cause = true;
      failed.report.progress = milliseconds(Below(3000));
      failed.report.exit_code = 1 + static_cast<int>(Below(255));
      failed.report.unix_time_ms = static_cast<int64_t>(tally_.steps);
      job_.Feed(failed);
      return;
    }
    case 1:
      job_.Feed(FirstWorkerSucceeded{
          .stamp = node.stamp(), .rank = node.first_rank, .age = milliseconds(Below(500))});
      return;
    default:
      job_.Feed(WorkersSucceeded{node.stamp(), AnyStopRead()});
      return;
  }
}

// Mostly of workers that were done.
StopRead RandomAgents::AnyStopRead() {
  const uint64_t any = Below(8);
  return any == 0 ? StopRead::kToEnd : any < 3 ? StopRead::kToScaleUp : StopRead::kNo;
}

void RandomAgents::Lie(const std::string& name) {
  Stamp stamp = job_.node(name).stamp();
  const auto shift = [this](uint64_t value) {
    if (Below(8) == 0) return UINT64_MAX - Below(3);
    return value + Below(4) - (value == 0 ? 0 : 1);
  };
  stamp.epoch.value = shift(stamp.epoch.value);
  stamp.round.value = shift(stamp.round.value);
  if (Below(3) == 0) stamp.session.value += Below(3);
  NodeJoined joined = job_.node(name).hello;
  joined.stamp = stamp;
  switch (Below(7)) {
    case 0:
      job_.Feed(HeartbeatReceived{stamp});
      return;
    case 1:
      job_.Feed(WorkersSucceeded{stamp});
      return;
    case 2: {
      WorkersFailed failed{.stamp = stamp, .report = {}, .age = seconds(Below(9999))};
      failed.report.rank = job_.node(name).first_rank;
      job_.Feed(failed);
      return;
    }
    case 3:
      job_.Feed(SessionBroken{SessionId{Below(40)}, Below(2) == 0});
      return;
    case 4:
      joined.held = Below(2) == 0 ? Assignment{} : job_.node(AnyName()).assignment;
      joined.held->instance = joined.stamp.instance;
      joined.held->epoch = joined.stamp.epoch;
      joined.held->round = joined.stamp.round;
      if (Below(2) == 0) joined.held->first_rank += static_cast<int>(Below(3));
      joined.restart_count = joined.held->restart_count;
      joined.max_restarts = joined.held->max_restarts;
      joined.stamp.session = job_.node(name).session;
      if (job_.node(name).is_connected) job_.Feed(joined);
      return;
    case 5:
      joined.restart_count = static_cast<int>(Below(4));
      joined.max_restarts = static_cast<int>(Below(4));
      joined.stamp.session = job_.node(name).session;
      if (job_.node(name).is_connected) job_.Feed(joined);
      return;
    default:
      joined.policy.min_nodes += 1;
      joined.stamp.session = job_.node(name).session;
      if (job_.node(name).is_connected) job_.Feed(joined);
      return;
  }
}

void RandomAgents::OrderStop(const std::string& name) {
  job_.Feed(StopOrdered{job_.node(name).stamp(), static_cast<StopHow>(Below(3)),
                        "ddprun stop on node " + name});
}

void RandomAgents::LetTimePass() {
  switch (Below(8)) {
    case 0:
      job_.Stall(milliseconds(Below(30000)));
      return;
    case 1:
      job_.Pass(seconds(Below(15)));
      return;
    default:
      job_.Pass(milliseconds(Below(700)));
      return;
  }
}

void RandomAgents::Obey() {
  for (auto& [name, node] : job_.nodes()) {
    if (node.is_concluded) {
      if (node.is_connected) job_.Feed(VerdictAcked{node.stamp()});
      continue;
    }
    if (node.is_refused) continue;
    if (!node.is_connected) {
      job_.Join(name, node.has_workers && !node.must_stop, true);
    } else if (node.must_stop) {
      job_.Join(name, false, false);
    } else if (node.has_workers) {
      job_.Feed(WorkersSucceeded{node.stamp()});
    }
  }
}

bool RandomAgents::Settle() {
  for (auto& [name, node] : job_.nodes()) {
    // A clean start for each agent's view: it reconnects with what it has.
    node.is_silent = node.is_refused = node.is_concluded = false;
    if (job_.policy().bad_nodes.has_check) node.hello.node.health.health = Health::kHealthy;
    if (node.is_connected) job_.Break(name);
  }
  // A laggard, a join timeout, an eviction, the acknowledgements: each once, and room to spare.
  const Policy& policy = job_.policy();
  const Duration limit = 3 * policy.join_timeout + 2 * policy.evict_after +
                         policy.verdict_ack_timeout + seconds(60) +
                         (policy.limits.backoff > Duration{0} ? seconds(300) : Duration{0});
  const TimePoint until = job_.now() + limit;
  while (!job_.machine().is_finished() && job_.now() < until) {
    Obey();
    Count();
    job_.Pass(seconds(1));
    ++tally_.steps;
  }
  Count();
  return job_.machine().is_finished();
}

void RandomAgents::Count() {
  Round newest{};
  if (is_loud_) {
    for (const std::string& line : job_.TakeLines()) std::puts(line.c_str());
    return;
  }
  for (const Action& action : job_.TakeActions()) {
    if (const auto* assign = std::get_if<Assign>(&action)) newest = assign->assignment.round;
    if (std::holds_alternative<Finish>(action)) ++tally_.finished;
    if (std::holds_alternative<TellSite>(action)) ++tally_.bad_nodes;
    if (const auto* drain = std::get_if<Drain>(&action)) {
      if (drain->reason.find("is lost") != std::string::npos) ++tally_.losses;
    }
    if (const auto* conclude = std::get_if<Conclude>(&action)) {
      ++(conclude->verdict.exit_code == 0                  ? tally_.successes
         : conclude->verdict.exit_code == kStoppedExitCode ? tally_.stops
                                                           : tally_.failures);
    }
    if (const auto* refuse = std::get_if<Refuse>(&action)) {
      if (refuse->kind == Refusal::kFinal) ++tally_.given_up;
    }
  }
  if (newest != Round{}) ++tally_.rounds;
}

void RandomAgents::AddTo(Tally& tally) const {
  tally.rounds += tally_.rounds;
  tally.successes += tally_.successes;
  tally.failures += tally_.failures;
  tally.given_up += tally_.given_up;
  tally.losses += tally_.losses;
  tally.finished += tally_.finished;
  tally.restarts += tally_.restarts;
  tally.stops += tally_.stops;
  tally.bad_nodes += tally_.bad_nodes;
  tally.steps += tally_.steps;
}

std::string RandomAgents::Describe() const {
  return Explain(job_.machine(), job_.now()) + "\n" + RenderState(job_.machine(), job_.now());
}

}  // namespace ddprun::rendezvous::testing
