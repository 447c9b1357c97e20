#include "tests/sim/cluster.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/server/job_file.h"

namespace ddprun::sim {
namespace {

// From a look at a leader to its place: three calls at three members, the last one carried out
// late.
constexpr Duration kLongestCandidacy = std::chrono::seconds(20);
constexpr uint64_t kMaxSteps = 1'000'000;  // a hundred times what a long run takes
// ...of one of the nodes of a crowd, which its heartbeats alone come to.
constexpr uint64_t kMaxStepsOfNode = 2'000;

}  // namespace

RunResult RunScenario(const Scenario& scenario, bool is_loud) {
  Cluster cluster(scenario, is_loud);
  return cluster.Run();
}

Cluster::Cluster(const Scenario& scenario, bool is_loud)
    : scenario_(scenario),
      checker_(scenario, timeline_),
      trace_(scenario, timeline_, checker_, is_loud),
      network_(scenario, timeline_),
      book_(scenario, timeline_),
      nodes_(scenario.nodes.size()) {
  if (scenario.is_elected) {
    etcd_.emplace(
        timeline_, scenario.seed, scenario.heal_at, JobKeyOf(scenario),
        [this](const auto& asked, const auto& answer, const auto&) { OnEtcdAsked(asked, answer); });
  }
  if (scenario.is_apart) StartCoordinator(nullptr, {});
  for (size_t node = 0; node < nodes_.size(); ++node) {
    ++waiting_starts_;
    timeline_.At(scenario.nodes[node].start, [this, node] {
      --waiting_starts_;
      StartAgent(static_cast<int>(node));
    });
  }
  for (const Fault& fault : scenario.faults) {
    timeline_.At(fault.at, [this, &fault] { Strike(fault); });
  }
}

RunResult Cluster::Run() {
  while (checker_.breaches().empty() && !(waiting_starts_ == 0 && IsOver())) {
    if (!timeline_.RunNext(scenario_.end_by)) break;
    if (timeline_.steps() == kMaxSteps + kMaxStepsOfNode * nodes_.size())
      checker_.Broken("P7: it goes round in circles");
  }
  checker_.AtEnd(IsOver());
  if (scenario_.is_elected && IsOver()) CheckEtcd();
  return {.breaches = checker_.breaches(),
          .hash = trace_.hash(),
          .steps = timeline_.steps(),
          .simulated = timeline_.now().time_since_epoch(),
          .tally = checker_.tally(),
          .etcd = etcd_ ? etcd_->load() : SimEtcd::Load{}};
}

void Cluster::set_heard(const Heard& heard) {
  trace_.set_heard([this, heard](const rendezvous::RendezvousEvent& event) {
    heard(timeline_.now(), event, network_.traffic());
  });
}

bool Cluster::IsOver() {
  // The one that was alive the last time mostly still is.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[alive_];
    if (node.agent != nullptr && node.agent->is_alive()) return false;
    alive_ = (alive_ + 1) % nodes_.size();
  }
  return true;
}

void Cluster::StartAgent(int node) {
  Node& place = nodes_[static_cast<size_t>(node)];
  AgentKey key{node, place.lives++};
  agents_.push_back(std::make_unique<SimAgent>(
      scenario_, timeline_, network_, trace_, book_,
      SimAgent::Setup{.key = key,
                      .coordinator = [this] { return Listening(); },
                      .host =
                          [this, key](const SimContact::Hosting& hosting) mutable {
                            return StartCoordinator(&key, hosting);
                          },
                      .etcd = etcd_ ? &*etcd_ : nullptr,
                      .find = [this](const rendezvous::Leader& place) { return At(place); },
                      .ended = [this, key](int exit_code) { OnAgentEnded(key, exit_code); }}));
  place.agent = agents_.back().get();
  place.agent->Begin();
}

void Cluster::OnAgentEnded(AgentKey key, int exit_code) {
  checker_.OnAgentEnded(key, exit_code);
  // Whoever keeps a cluster busy starts an agent again on the bad host.
  constexpr int kMostLives = 4;
  if (exit_code == rendezvous::kBadNodeExitCode && key.life < kMostLives) {
    ++waiting_starts_;
    return timeline_.After(std::chrono::milliseconds(700), [this, key] {
      --waiting_starts_;
      StartAgent(key.node);
    });
  }
  if (!scenario_.has_next_job || exit_code != 0 || key.life > 0) return;
  ++waiting_starts_;
  timeline_.After(std::chrono::milliseconds(30 * (key.node + 1)), [this, key] {
    --waiting_starts_;
    StartAgent(key.node);
  });
}

SimCoordinator* Cluster::StartCoordinator(AgentKey* host, const SimContact::Hosting& hosting) {
  const SimClock clock = host == nullptr ? scenario_.coordinator_clock
                                         : scenario_.nodes[static_cast<size_t>(host->node)].clock;
  if (!scenario_.keeps_file) file_ = {};
  SimAgent* agent = host == nullptr ? nullptr : nodes_[static_cast<size_t>(host->node)].agent;
  const size_t index = coordinators_.size();
  const auto finished = [this, agent, index] {
    if (agent != nullptr) return agent->HostFinished();
    coordinators_[index]->End();
    if (!scenario_.has_next_job || index > 0) return;
    timeline_.After(std::chrono::milliseconds(300), [this] { StartCoordinator(nullptr, {}); });
  };
  coordinators_.push_back(std::make_unique<SimCoordinator>(
      scenario_, timeline_, network_, trace_, file_,
      SimCoordinator::Start{.life = static_cast<int>(index),
                            .host = host == nullptr ? -1 : host->node,
                            .clock = clock,
                            .finished = finished,
                            .etcd = etcd_ ? &*etcd_ : nullptr,
                            .seen_revision = hosting.seen_revision,
                            .is_leader_gone = hosting.is_leader_gone,
                            .began = hosting.began,
                            .lost = hosting.lost,
                            .resigns = hosting.resigns}));
  return coordinators_.back().get();
}

SimCoordinator* Cluster::Listening() {
  for (auto it = coordinators_.rbegin(); it != coordinators_.rend(); ++it) {
    if ((*it)->is_listening()) return it->get();
  }
  return nullptr;
}

SimCoordinator* Cluster::At(const rendezvous::Leader& place) {
  const auto found = std::ranges::find_if(
      coordinators_, [&](const auto& coordinator) { return coordinator->place() == place; });
  return found == coordinators_.end() ? nullptr : found->get();
}

SimCoordinator* Cluster::Leading() {
  const std::optional<rendezvous::EtcdKey> key = etcd_->model().Find(LeaderKeyOf(scenario_));
  SimCoordinator* leader = key ? At(*rendezvous::DecodeLeader(key->value)) : nullptr;
  return leader != nullptr && leader->is_listening() ? leader : nullptr;
}

void Cluster::OnEtcdAsked(const SimEtcd::Asked& asked, const rendezvous::EtcdAnswer& answer) {
  const auto* transaction = std::get_if<rendezvous::EtcdTransaction>(&asked.call);
  if (transaction == nullptr || !answer.outcome.is_applied || transaction->puts.empty()) return;
  const SimCoordinator* writer = At(*rendezvous::DecodeLeader(asked.self));
  const std::optional<rendezvous::EtcdKey> job = etcd_->model().Find(JobKeyOf(scenario_));
  if (transaction->puts[0].key == JobKeyOf(scenario_)) {
    return trace_.RecordKept(writer->life(), *rendezvous::DecodeRecord(job->value));
  }
  const auto host = static_cast<size_t>(writer->host());
  const bool is_stolen = leader_ != nullptr && leader_->IsSpeaking(Duration{0});
  leader_ = writer;
  trace_.PlaceTaken(writer->life(), {writer->host(), nodes_[host].lives - 1}, job.has_value(),
                    is_stolen);
  for (const auto& other : coordinators_) {
    // Clocks differ by a part in a thousand of a lease.
    if (other.get() == writer || !other->IsSpeaking(std::chrono::milliseconds(10))) continue;
    // What looks like the end of its process may be a firewall's word.
    if (network_.IsRefused(writer->host(), other->host(), kLongestCandidacy)) {
      displaced_.insert(other.get());
    }
    if (displaced_.contains(other.get())) continue;  // it has yet to hear of it
    checker_.Broken(absl::StrCat("S17: coordinator ", writer->life(), " takes the place of ",
                                 other->life(), ", which speaks"));
  }
}

// Behind what is under way yet and the longest lease nothing of the job may be there.
void Cluster::CheckEtcd() {
  const TimePoint last = timeline_.now() + std::chrono::seconds(20);
  while (timeline_.RunNext(last)) {
  }
  etcd_->model().EndLeases(last + JobTimeOf(scenario_) + std::chrono::seconds(5));
  const size_t left = etcd_->model().size();
  if (left > 0) checker_.Broken(absl::StrCat("P8: ", left, " keys and leases are left in etcd"));
}

TimePoint Cluster::UndoneAt(const Fault& fault) const {
  return std::min(fault.at + fault.duration, std::max(scenario_.heal_at, fault.at));
}

void Cluster::Strike(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kCutCoordinator:
    case FaultKind::kPauseCoordinator:
    case FaultKind::kLagCoordinator:
    case FaultKind::kKillCoordinator:
    case FaultKind::kLoseFile:
      if (scenario_.is_elected) return StrikeLeader(fault);
      trace_.Faulted(fault);
      if (fault.kind != FaultKind::kCutCoordinator) return StrikeCoordinator(fault);
      if (scenario_.is_apart) return network_.CutCoordinator(UndoneAt(fault) - fault.at);
      return network_.Cut(0, true, true, UndoneAt(fault) - fault.at);
    case FaultKind::kBreakStream:
    case FaultKind::kHalfBreak:
    case FaultKind::kCutNode:
    case FaultKind::kCutUp:
    case FaultKind::kCutDown:
      trace_.Faulted(fault);
      return StrikePath(fault);
    case FaultKind::kSilentEtcd:
    case FaultKind::kSlowEtcd:
    case FaultKind::kCutFromEtcd:
      trace_.Faulted(fault);
      return StrikeEtcd(fault);
    case FaultKind::kRefuse:
      trace_.Faulted(fault);
      return network_.Refuse(fault.node, NextNode(fault.node), UndoneAt(fault) - fault.at);
    case FaultKind::kPauseAgent:
    case FaultKind::kKillAgent:
    case FaultKind::kSignalAgent:
    case FaultKind::kOrderStop:
    case FaultKind::kWorkerFails:
    case FaultKind::kWorkerKilled:
      trace_.Faulted(fault);
      return StrikeNode(fault);
  }
}

// With etcd the coordinator's faults are its agent's, or its machine's.
void Cluster::StrikeLeader(Fault fault) {
  const SimCoordinator* leader = Leading();
  if (leader == nullptr) return;
  fault.node = leader->host();
  fault.kind = fault.kind == FaultKind::kCutCoordinator     ? FaultKind::kCutNode
               : fault.kind == FaultKind::kPauseCoordinator ? FaultKind::kPauseAgent
                                                            : FaultKind::kKillAgent;
  Strike(fault);
}

void Cluster::StrikeEtcd(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kSilentEtcd:
      return etcd_->Stop(UndoneAt(fault), fault.detail == 1);
    case FaultKind::kSlowEtcd:
      return etcd_->Slow(UndoneAt(fault), std::chrono::seconds(1));
    default:
      return etcd_->Cut(static_cast<size_t>(fault.node), UndoneAt(fault));
  }
}

void Cluster::StrikePath(const Fault& fault) {
  const Duration duration = UndoneAt(fault) - fault.at;
  switch (fault.kind) {
    case FaultKind::kBreakStream:
      return network_.BreakStream(fault.node);
    case FaultKind::kHalfBreak:
      return network_.HalfBreak(fault.node);
    default:
      network_.Cut(fault.node, fault.kind != FaultKind::kCutDown, fault.kind != FaultKind::kCutUp,
                   duration);
      if (etcd_ && fault.detail == 1) etcd_->Cut(static_cast<size_t>(fault.node), UndoneAt(fault));
      return;
  }
}

void Cluster::StrikeNode(const Fault& fault) {
  SimAgent* agent = nodes_[static_cast<size_t>(fault.node)].agent;
  if (agent == nullptr || !agent->is_alive()) return;
  switch (fault.kind) {
    case FaultKind::kPauseAgent:
      return PauseAgent(fault);
    case FaultKind::kKillAgent:
      return KillAgent(fault);
    case FaultKind::kSignalAgent:
      agent->Signal(false);
      if (fault.duration == Duration{0}) return;
      return timeline_.After(fault.duration, [agent] { agent->Signal(true); });
    case FaultKind::kOrderStop:
      return agent->OrderStop(fault.detail == 1   ? rendezvous::StopHow::kAfterStep
                              : fault.detail == 2 ? rendezvous::StopHow::kNow
                                                  : rendezvous::StopHow::kGracefully);
    case FaultKind::kWorkerFails:
      return agent->workers().Fail(fault.detail / 256, fault.detail % 256, 0);
    case FaultKind::kWorkerKilled:
      return agent->workers().Fail(fault.detail / 256, 0, fault.detail % 256);
    default:
      return;
  }
}

void Cluster::PauseAgent(const Fault& fault) {
  SimAgent* agent = nodes_[static_cast<size_t>(fault.node)].agent;
  SimCoordinator* coordinator = agent->contact().hosted();
  const Duration duration = UndoneAt(fault) - fault.at;
  if (agent->is_paused()) return;
  agent->Pause();
  if (coordinator != nullptr) {
    coordinator->Pause();
    network_.CoordinatorStopsAnswering(scenario_.is_elected ? fault.node : 0, duration);
  }
  if (coordinator == nullptr || scenario_.is_elected) network_.StopAnswering(fault.node, duration);
  timeline_.After(duration, [agent, coordinator] {
    if (coordinator != nullptr) coordinator->Resume();
    agent->Resume();
  });
}

void Cluster::KillAgent(const Fault& fault) {
  SimAgent* agent = nodes_[static_cast<size_t>(fault.node)].agent;
  if (agent->contact().hosted() != nullptr) agent->contact().hosted()->Kill();
  agent->Kill();
  if (fault.duration == Duration{0}) return;
  ++waiting_starts_;
  // The guardian has ended what was left before anybody starts it again.
  timeline_.At(std::max(UndoneAt(fault), timeline_.now() + std::chrono::milliseconds(50)),
               [this, node = fault.node] {
                 --waiting_starts_;
                 StartAgent(node);
               });
}

void Cluster::StrikeCoordinator(const Fault& fault) {
  SimCoordinator* coordinator = Listening();
  if (coordinator == nullptr) return;
  const Duration duration = UndoneAt(fault) - fault.at;
  if (fault.kind == FaultKind::kLagCoordinator) {
    return coordinator->Lag(std::chrono::milliseconds(fault.detail), timeline_.now() + duration);
  }
  if (fault.kind == FaultKind::kPauseCoordinator) {
    if (coordinator->is_paused()) return;
    coordinator->Pause();
    network_.CoordinatorStopsAnswering(scenario_.is_apart ? -1 : 0, duration);
    timeline_.After(duration, [coordinator] { coordinator->Resume(); });
    return;
  }
  coordinator->Kill();
  if (fault.kind == FaultKind::kLoseFile) file_ = {};
  ++waiting_starts_;
  timeline_.After(duration, [this] {
    --waiting_starts_;
    if (Listening() == nullptr) StartCoordinator(nullptr, {});
  });
}

}  // namespace ddprun::sim
