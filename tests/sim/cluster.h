// One run: the nodes, the coordinator, the network, and the faults at their times.
#ifndef DDPRUN_TESTS_SIM_CLUSTER_H_
#define DDPRUN_TESTS_SIM_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/network.h"
#include "tests/sim/sim_agent.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_workers.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

struct RunResult {
  std::vector<std::string> breaches;  // empty: none
  uint64_t hash = 0;                  // of all that happened
  uint64_t steps = 0;
  Duration simulated{0};
  Tally tally;
  SimEtcd::Load etcd = {};
};

// Runs the scenario from its start to its end. `is_loud`: prints what happens.
RunResult RunScenario(const Scenario& scenario, bool is_loud);
// What an agent hears, when, and what was sent until then.
using Heard = std::function<void(TimePoint, const rendezvous::RendezvousEvent&, const Traffic&)>;

class Cluster {
 public:
  Cluster(const Scenario& scenario, bool is_loud);
  RunResult Run();
  void set_heard(const Heard& heard);

 private:
  struct Node {
    SimAgent* agent = nullptr;  // the newest; null: none was started
    int lives = 0;
  };
  void StartAgent(int node);
  SimCoordinator* StartCoordinator(AgentKey* host, const SimContact::Hosting& hosting);
  void OnAgentEnded(AgentKey key, int exit_code);
  // The one that listens; null: nobody does.
  SimCoordinator* Listening();
  // With etcd: the one at that place, dead or alive; the newest that begins or leads, or null.
  SimCoordinator* At(const rendezvous::Leader& place);
  SimCoordinator* Leading();
  void OnEtcdAsked(const SimEtcd::Asked& asked, const rendezvous::EtcdAnswer& answer);
  void Strike(const Fault& fault);
  void StrikeNode(const Fault& fault);
  void StrikeCoordinator(const Fault& fault);
  void StrikeLeader(Fault fault);
  void CheckEtcd();
  void StrikeEtcd(const Fault& fault);
  void StrikePath(const Fault& fault);
  void PauseAgent(const Fault& fault);
  void KillAgent(const Fault& fault);
  // When what the fault did is undone: not after all is well again.
  TimePoint UndoneAt(const Fault& fault) const;
  int NextNode(int node) const { return (node + 1) % static_cast<int>(nodes_.size()); }
  bool IsOver();

  const Scenario& scenario_;
  Timeline timeline_;
  Checker checker_;
  Trace trace_;
  Network network_;
  RoundBook book_;
  CoordinatorFile file_;
  std::optional<SimEtcd> etcd_;
  std::vector<Node> nodes_;
  size_t alive_ = 0;                           // a node whose agent runs, as far as known
  int waiting_starts_ = 0;                     // processes that will be started yet
  const SimCoordinator* leader_ = nullptr;     // with etcd: who took the place last
  std::set<const SimCoordinator*> displaced_;  // by a node that they refuse
  // Everything that ever ran: what is under way may still reach it.
  std::vector<std::unique_ptr<SimAgent>> agents_;
  std::vector<std::unique_ptr<SimCoordinator>> coordinators_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_CLUSTER_H_
