#include "tests/sim/sim_agent.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// As the driver gives it.
constexpr Duration kContactTimeout = seconds(11);
constexpr int kSigTerm = 15;

launcher::AgentPolicy PolicyOf(const Scenario& scenario, AgentKey key) {
  launcher::AgentPolicy policy = scenario.agent;
  policy.local_world_size = scenario.nodes[static_cast<size_t>(key.node)].local_world_size;
  policy.max_nodes = scenario.policy.max_nodes;
  return policy;
}

}  // namespace

SimAgent::SimAgent(const Scenario& scenario, Timeline& timeline, Network& network, Trace& trace,
                   RoundBook& book, Setup setup)
    : Process(timeline, scenario.nodes[static_cast<size_t>(setup.key.node)].clock),
      scenario_(scenario),
      trace_(trace),
      setup_(std::move(setup)),
      core_(PolicyOf(scenario, setup_.key)),
      random_(
          Mix(scenario.seed, 6, static_cast<uint64_t>(setup_.key.node * 1000 + setup_.key.life))),
      workers_(scenario, timeline, trace, book, setup_.key,
               {.ended =
                    [this](const launcher::WorkerEnd& end, std::optional<int> left_peer) {
                      Enter([this, end, left_peer] { OnWorkerEnded(end, left_peer); });
                    },
                .gone = [this] { Enter([this] { Feed(launcher::WorkersGone{}); }); }}),
      contact_(scenario, timeline, network, *this,
               {.key = setup_.key,
                .enter = [this](std::function<void()> work) { Enter(std::move(work)); },
                .now = [this] { return now(); },
                .coordinator = setup_.coordinator,
                .host = setup_.host,
                .etcd = setup_.etcd,
                .find = setup_.find,
                .emit = [this](const rendezvous::RendezvousEvent& event) { Hear(event); }}) {}

void SimAgent::Begin() {
  trace_.AgentStarted(setup_.key);
  Enter([this] { Feed(launcher::AgentStarted{}); });
}

void SimAgent::Kill() {
  trace_.AgentKilled(setup_.key);
  Die();
  contact_.Drop();
  timeline_.After(std::chrono::milliseconds(20), [this] { workers_.AgentDied(); });
}

void SimAgent::Signal(bool is_kill) {
  Enter([this, is_kill] { Feed(launcher::SignalReceived{kSigTerm, is_kill}); });
}

void SimAgent::OrderStop(rendezvous::StopHow how) {
  Enter([this, how] {
    Feed(launcher::StopOrder{how, "ddprun stop on node " + NameOf(setup_.key)});
  });
}

void SimAgent::Hear(const rendezvous::RendezvousEvent& event) {
  trace_.AgentHeard(setup_.key, event);
  std::visit(
      [this](const auto& any) {
        // Questions and answers are the driver's.
        if constexpr (std::is_constructible_v<launcher::AgentEvent, decltype(any)>) Feed(any);
      },
      event);
}

void SimAgent::HearDown(const StreamPtr& stream, const Down& down) {
  Enter([this, stream, down] { contact_.HearDown(stream, down); });
}

void SimAgent::HearDownBroken(const StreamPtr& stream) {
  Enter([this, stream] { contact_.HearBroken(stream); });
}

void SimAgent::Feed(const launcher::AgentEvent& event) {
  inbox_.push_back(event);
  if (std::exchange(is_stepping_, true)) return;
  while (!inbox_.empty() && is_alive()) {
    const launcher::AgentEvent current = std::move(inbox_.front());
    inbox_.pop_front();
    for (const launcher::AgentAction& action : core_.Step(now(), current)) {
      trace_.AgentDid(setup_.key, action);
      std::visit([this](const auto& any) { Do(any); }, action);
    }
  }
  is_stepping_ = false;
}

void SimAgent::AfterWork() {
  const auto is_due = [this](std::optional<TimePoint> at) { return at && *at <= now(); };
  if (is_due(core_.NextDeadline())) Feed(launcher::AgentTimePassed{});
  if (is_alive() && is_due(contact_.NextDeadline())) contact_.Give(rendezvous::TimePassed{});
  if (!is_alive()) return;
  std::optional<TimePoint> next = core_.NextDeadline();
  const std::optional<TimePoint> of_contact = contact_.NextDeadline();
  if (!next || (of_contact && *of_contact < *next)) next = of_contact;
  if (is_due(next)) trace_.Broken("P7: a deadline of " + NameOf(setup_.key) + " stays in the past");
  ArmTimer(next);
}

void SimAgent::OnWorkerEnded(launcher::WorkerEnd end, std::optional<int> left_peer) {
  left_peers_[end.pid] = left_peer;
  end.at = now();
  end.tells_lost_peer =
      left_peer || (scenario_.follows_by_abort && end.signal == 6 && !end.was_told_to_stop);
  Feed(end);
}

void SimAgent::Answer(launcher::AgentEvent event) {
  const Duration longest = random_.Chance(5) ? Duration(seconds(2)) : milliseconds(20);
  timeline_.After(random_.Between(Duration{0}, longest),
                  [this, event = std::move(event)] { Enter([this, event] { Feed(event); }); });
}

void SimAgent::Do(const launcher::CheckHealth& action) {
  const NodePlan& plan = scenario_.nodes[static_cast<size_t>(setup_.key.node)];
  using rendezvous::Health;
  const bool is_bad = random_.Chance(plan.bad_percent);
  const Health health = is_bad               ? Health::kBad
                        : random_.Chance(10) ? Health::kUnknown
                                             : Health::kHealthy;
  const Duration longest = scenario_.policy.bad_nodes.check_timeout;
  timeline_.After(random_.Between(Duration{0}, longest), [this, number = action.number, health] {
    Enter([this, number, health] { Feed(launcher::HealthFound{number, {health, "by chance"}}); });
  });
}

void SimAgent::Do(const launcher::ReportHealth& action) {
  contact_.Give(rendezvous::HealthCommand{action.report});
}

void SimAgent::Do(const launcher::JoinRound& action) {
  const NodePlan& plan = scenario_.nodes[static_cast<size_t>(setup_.key.node)];
  rendezvous::NodeInfo node;
  node.id = NodeId{NameOf(setup_.key)};
  node.host = HostOf(scenario_, setup_.key.node);
  node.advertised_addr = node.host;
  node.local_world_size = plan.local_world_size;
  node.node_rank = plan.node_rank;
  node.store_port = ++store_port_;
  node.health = action.health;
  contact_.Give(rendezvous::JoinCommand{node});
}

void SimAgent::Do(const launcher::PrepareWorkers& action) {
  is_scale_up_asked_ = false;
  Answer(launcher::WorkersPrepared{action.assignment});
}

void SimAgent::Do(const launcher::StartWorkers& action) {
  started_at_ = now();
  workers_.Start(action.assignment);
  if (is_scale_up_asked_) workers_.AskToStop();
}

void SimAgent::Do(const launcher::AskToStop& action) {
  if (!action.is_to_scale_up) return;
  is_scale_up_asked_ = true;
  if (workers_.has_living()) workers_.AskToStop();
}

void SimAgent::Do(const launcher::StopWorkers& action) {
  workers_.Stop(action.signal, action.grace);
}

void SimAgent::Do(const launcher::OrderStop& action) {
  contact_.Give(rendezvous::StopCommand{action.how, action.reason});
}

void SimAgent::Do(const launcher::KillWorkers&) { workers_.KillNow(); }

void SimAgent::Do(const launcher::DescribeFailure& action) {
  rendezvous::FailureReport report;
  report.node = NodeId{NameOf(setup_.key)};
  report.host = HostOf(scenario_, setup_.key.node);
  report.node_rank = action.assignment.node_rank;
  report.rank = action.assignment.first_rank + action.end.local_rank;
  report.local_rank = action.end.local_rank;
  report.pid = action.end.pid;
  report.exit_code = action.end.exit_code;
  report.signal = action.end.signal;
  report.message = action.end.message;
  report.left_peer = left_peers_[action.end.pid];
  report.has_own_cause = scenario_.follows_by_abort && report.signal == 0;  // it raised
  report.progress = std::chrono::floor<milliseconds>(action.end.at - started_at_);
  Answer(launcher::FailureDescribed{action.end, action.assignment, report});
}

void SimAgent::Do(const launcher::LookForEnding& action) {
  Answer(launcher::EndingFound{action.assignment, workers_.ending()});
}

void SimAgent::Do(const launcher::ReportFailure& action) {
  contact_.Give(rendezvous::ReportCommand{
      action.round, rendezvous::WorkersFailed{.stamp = {}, .report = action.report}, action.at});
}

void SimAgent::Do(const launcher::ReportFirstSuccess& action) {
  contact_.Give(rendezvous::ReportCommand{
      action.round, rendezvous::FirstWorkerSucceeded{.stamp = {}, .rank = action.rank}, action.at});
}

void SimAgent::Do(const launcher::ReportSuccess& action) {
  const rendezvous::StopRead stop_read =
      workers_.has_read_stop() ? action.if_read : rendezvous::StopRead::kNo;
  contact_.Give(rendezvous::ReportCommand{
      action.round, rendezvous::WorkersSucceeded{.stamp = {}, .stop_read = stop_read}});
}

void SimAgent::Do(const launcher::LeaveJob& action) {
  contact_.Give(rendezvous::LeaveCommand{action.reason, action.is_by_signal});
}

void SimAgent::Do(const launcher::AckVerdict&) { contact_.Give(rendezvous::AckCommand{}); }

void SimAgent::Do(const launcher::EndJob&) {
  workers_.KillNow();  // what is left of them
  Answer(launcher::LeftoversGone{});
  contact_.Give(rendezvous::EndCommand{kContactTimeout});
  Answer(launcher::ReportWritten{});
}

void SimAgent::Do(const launcher::DrainLogs&) { Answer(launcher::LogsDrained{}); }

void SimAgent::Do(const launcher::ExitAgent& action) {
  // An end in a hurry takes the connections and the coordinator with it.
  if (contact_.hosted() != nullptr) contact_.hosted()->Kill();
  contact_.Drop();
  setup_.ended(action.exit_code);
  Die();
}

}  // namespace ddprun::sim
