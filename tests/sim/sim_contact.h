// An agent's way to the coordinator: the product's contact core over simulated links.
#ifndef DDPRUN_TESTS_SIM_SIM_CONTACT_H_
#define DDPRUN_TESTS_SIM_SIM_CONTACT_H_

#include <deque>
#include <functional>
#include <optional>

#include "rendezvous/client/contact_core.h"
#include "rendezvous/client/rendezvous_client.h"
#include "tests/sim/network.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

class SimContact {
 public:
  // With etcd a coordinator begins when it leads.
  struct Hosting {
    int64_t seen_revision = 0;
    bool is_leader_gone = false;
    std::function<void(bool leads, const std::string& why)> began;
    std::function<void(const std::string& why)> lost;
    std::function<void(const std::string& why)> resigns;
  };
  struct Setup {
    AgentKey key;
    // Runs work in the agent's process.
    std::function<void(std::function<void()>)> enter;
    std::function<TimePoint()> now;  // by the process's clock
    // Who listens at the endpoint; null: nobody does.
    std::function<SimCoordinator*()> coordinator;
    // Starts one in this process.
    std::function<SimCoordinator*(const Hosting&)> host;
    // With etcd: the coordinator at a place, which may be gone.
    SimEtcd* etcd = nullptr;
    std::function<SimCoordinator*(const rendezvous::Leader&)> find;
    std::function<void(const rendezvous::RendezvousEvent&)> emit;
  };
  SimContact(const Scenario& scenario, Timeline& timeline, Network& network, AgentEnd& end,
             Setup setup);

  void Give(rendezvous::ContactEvent event);
  std::optional<TimePoint> NextDeadline() const { return core_.NextDeadline(); }
  SimCoordinator* hosted() const { return hosted_; }
  void HearDown(const StreamPtr& stream, const Down& down);
  void HearBroken(const StreamPtr& stream);
  // The process has died.
  void Drop();

 private:
  using Outcome = rendezvous::Looked::Outcome;
  // What is looked at: the endpoint, or where etcd's word leads.
  SimCoordinator* Target() const;
  int NodeOf(const SimCoordinator* coordinator) const;
  Outcome LookNow() const;
  void LookAtTarget();
  void LookByEtcd(bool is_key_only);
  void HostByEtcd(bool is_leader_gone);
  // Says hello over a connection that can be made now.
  void Greet();
  rendezvous::Looked SeenAs(Outcome outcome) const;
  void Answer(Duration after, std::function<rendezvous::ContactEvent()> event);

  void Do(const rendezvous::CheckLocalName&);
  void Do(const rendezvous::LookAtEndpoint&);
  void Do(const rendezvous::HostHere& action);
  void Do(const rendezvous::StopHosting& action);
  void Do(const rendezvous::OpenLink& action);
  void Do(const rendezvous::SayEvent& action);
  void Do(const rendezvous::CloseLink& action);
  void Do(const rendezvous::Emit& action) { setup_.emit(action.event); }

  const Scenario& scenario_;
  Timeline& timeline_;
  Network& network_;
  AgentEnd& end_;
  const Setup setup_;
  Random random_;
  rendezvous::ContactCore core_;
  std::deque<rendezvous::ContactEvent> inbox_;
  bool is_stepping_ = false;
  StreamPtr stream_;
  SimCoordinator* hosted_ = nullptr;
  // With etcd:
  SimCoordinator* found_ = nullptr;  // where the last look was
  int64_t seen_revision_ = 0;        // of the leader's key
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_CONTACT_H_
