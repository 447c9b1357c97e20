#include "tests/sim/cluster.h"

#include <algorithm>

namespace ddprun::sim {
namespace {

constexpr uint64_t kMaxSteps = 1'000'000;  // a hundred times what a long run takes

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
  if (scenario.is_apart) StartCoordinator(nullptr);
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
    if (timeline_.steps() == kMaxSteps) checker_.Broken("P7: it goes round in circles");
  }
  checker_.AtEnd(IsOver());
  return {.breaches = checker_.breaches(),
          .hash = trace_.hash(),
          .steps = timeline_.steps(),
          .simulated = timeline_.now().time_since_epoch(),
          .tally = checker_.tally()};
}

bool Cluster::IsOver() {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
    return node.agent == nullptr || !node.agent->is_alive();
  });
}

void Cluster::StartAgent(int node) {
  Node& place = nodes_[static_cast<size_t>(node)];
  AgentKey key{node, place.lives++};
  agents_.push_back(std::make_unique<SimAgent>(
      scenario_, timeline_, network_, trace_, book_,
      SimAgent::Setup{.key = key,
                      .coordinator = [this] { return Listening(); },
                      .host = [this, key]() mutable { return StartCoordinator(&key); },
                      .ended = [this, key](int exit_code) { OnAgentEnded(key, exit_code); }}));
  place.agent = agents_.back().get();
  place.agent->Begin();
}

void Cluster::OnAgentEnded(AgentKey key, int exit_code) {
  checker_.OnAgentEnded(key, exit_code);
  if (!scenario_.has_next_job || exit_code != 0 || key.life > 0) return;
  ++waiting_starts_;
  timeline_.After(std::chrono::milliseconds(30 * (key.node + 1)), [this, key] {
    --waiting_starts_;
    StartAgent(key.node);
  });
}

SimCoordinator* Cluster::StartCoordinator(AgentKey* host) {
  const SimClock clock = host == nullptr ? scenario_.coordinator_clock
                                         : scenario_.nodes[static_cast<size_t>(host->node)].clock;
  if (!scenario_.keeps_file) file_ = {};
  SimAgent* agent = host == nullptr ? nullptr : nodes_[static_cast<size_t>(host->node)].agent;
  const size_t index = coordinators_.size();
  const auto finished = [this, agent, index] {
    if (agent != nullptr) return agent->HostFinished();
    coordinators_[index]->End();
    if (!scenario_.has_next_job || index > 0) return;
    timeline_.After(std::chrono::milliseconds(300), [this] { StartCoordinator(nullptr); });
  };
  coordinators_.push_back(std::make_unique<SimCoordinator>(
      scenario_, timeline_, network_, trace_, file_,
      SimCoordinator::Start{.life = static_cast<int>(index),
                            .host = host == nullptr ? -1 : host->node,
                            .clock = clock,
                            .finished = finished}));
  return coordinators_.back().get();
}

SimCoordinator* Cluster::Listening() {
  for (auto it = coordinators_.rbegin(); it != coordinators_.rend(); ++it) {
    if ((*it)->is_listening()) return it->get();
  }
  return nullptr;
}

TimePoint Cluster::UndoneAt(const Fault& fault) const {
  return std::min(fault.at + fault.duration, std::max(scenario_.heal_at, fault.at));
}

void Cluster::Strike(const Fault& fault) {
  trace_.Faulted(fault);
  switch (fault.kind) {
    case FaultKind::kCutCoordinator:
      return network_.CutCoordinator(UndoneAt(fault) - fault.at);
    case FaultKind::kPauseCoordinator:
    case FaultKind::kKillCoordinator:
    case FaultKind::kLoseFile:
      return StrikeCoordinator(fault);
    case FaultKind::kBreakStream:
      return network_.BreakStream(fault.node);
    case FaultKind::kHalfBreak:
      return network_.HalfBreak(fault.node);
    case FaultKind::kCutNode:
      return network_.Cut(fault.node, true, true, UndoneAt(fault) - fault.at);
    case FaultKind::kCutUp:
      return network_.Cut(fault.node, true, false, UndoneAt(fault) - fault.at);
    case FaultKind::kCutDown:
      return network_.Cut(fault.node, false, true, UndoneAt(fault) - fault.at);
    case FaultKind::kPauseAgent:
    case FaultKind::kKillAgent:
    case FaultKind::kSignalAgent:
    case FaultKind::kOrderStop:
    case FaultKind::kWorkerFails:
    case FaultKind::kWorkerKilled:
      return StrikeNode(fault);
  }
}

void Cluster::StrikeNode(const Fault& fault) {
  SimAgent* agent = nodes_[static_cast<size_t>(fault.node)].agent;
  if (agent == nullptr || !agent->is_alive()) return;
  SimCoordinator* coordinator = agent->contact().hosted();
  const Duration duration = UndoneAt(fault) - fault.at;
  switch (fault.kind) {
    case FaultKind::kPauseAgent:
      if (agent->is_paused()) return;
      agent->Pause();
      if (coordinator != nullptr) {
        coordinator->Pause();
        network_.CoordinatorStopsAnswering(duration);
      } else {
        network_.StopAnswering(fault.node, duration);
      }
      timeline_.After(duration, [agent, coordinator] {
        if (coordinator != nullptr) coordinator->Resume();
        agent->Resume();
      });
      return;
    case FaultKind::kKillAgent:
      return KillAgent(fault);
    case FaultKind::kSignalAgent:
      agent->Signal(false);
      if (fault.duration == Duration{0}) return;
      return timeline_.After(fault.duration, [agent] { agent->Signal(true); });
    case FaultKind::kOrderStop:
      return agent->OrderStop(fault.detail != 0);
    case FaultKind::kWorkerFails:
      return agent->workers().Fail(fault.detail / 256, fault.detail % 256, 0);
    case FaultKind::kWorkerKilled:
      return agent->workers().Fail(fault.detail / 256, 0, fault.detail % 256);
    default:
      return;
  }
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
  if (fault.kind == FaultKind::kPauseCoordinator) {
    if (coordinator->is_paused()) return;
    coordinator->Pause();
    network_.CoordinatorStopsAnswering(duration);
    timeline_.After(duration, [coordinator] { coordinator->Resume(); });
    return;
  }
  coordinator->Kill();
  if (fault.kind == FaultKind::kLoseFile) file_ = {};
  ++waiting_starts_;
  timeline_.After(duration, [this] {
    --waiting_starts_;
    if (Listening() == nullptr) StartCoordinator(nullptr);
  });
}

}  // namespace ddprun::sim
