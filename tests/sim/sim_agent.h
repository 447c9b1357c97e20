// One agent process: the product's agent core and its contact, driven as the agent's driver does,
// over workers that are simulated.
#ifndef DDPRUN_TESTS_SIM_SIM_AGENT_H_
#define DDPRUN_TESTS_SIM_SIM_AGENT_H_

#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "launcher/agent/agent_core.h"
#include "tests/sim/process.h"
#include "tests/sim/sim_contact.h"
#include "tests/sim/sim_random.h"
#include "tests/sim/sim_workers.h"

namespace ddprun::sim {

class SimAgent final : public Process, public AgentEnd {
 public:
  struct Setup {
    AgentKey key;
    std::function<SimCoordinator*()> coordinator;
    std::function<SimCoordinator*(const SimContact::Hosting&)> host;
    SimEtcd* etcd = nullptr;
    std::function<SimCoordinator*(const rendezvous::Leader&)> find;
    // The process has ended by itself.
    std::function<void(int exit_code)> ended;
  };
  SimAgent(const Scenario& scenario, Timeline& timeline, Network& network, Trace& trace,
           RoundBook& book, Setup setup);

  void Begin();
  // SIGKILL; the guardian then kills the workers.
  void Kill();
  void Signal(bool is_kill);
  // The user's `ddprun stop`.
  void OrderStop(rendezvous::StopHow how);
  // The coordinator in this process has finished.
  void HostFinished() {
    Enter([this] { contact_.Give(rendezvous::HostFinished{}); });
  }
  SimWorkers& workers() { return workers_; }
  SimContact& contact() { return contact_; }

  void HearDown(const StreamPtr& stream, const Down& down) override;
  void HearDownBroken(const StreamPtr& stream) override;

 private:
  void AfterWork() override;
  void Feed(const launcher::AgentEvent& event);
  void Hear(const rendezvous::RendezvousEvent& event);
  void OnWorkerEnded(launcher::WorkerEnd end, std::optional<int> left_peer);
  // What a file thread answers: mostly at once, now and then only after a while.
  void Answer(launcher::AgentEvent event);

  void Do(const launcher::JoinRound& action);
  void Do(const launcher::CheckHealth& action);
  void Do(const launcher::StopHealthCheck&) {}  // the core knows a late result by its number
  void Do(const launcher::ReportHealth& action);
  void Do(const launcher::PrepareWorkers& action);
  void Do(const launcher::StartWorkers& action);
  void Do(const launcher::StopWorkers& action);
  void Do(const launcher::AskToStop& action);
  void Do(const launcher::OrderStop& action);
  void Do(const launcher::AnswerStop&) {}
  void Do(const launcher::KillWorkers&);
  void Do(const launcher::DescribeFailure& action);
  void Do(const launcher::LookForEnding& action);
  void Do(const launcher::ReportFailure& action);
  void Do(const launcher::ReportFirstSuccess& action);
  void Do(const launcher::ReportSuccess& action);
  void Do(const launcher::LeaveJob& action);
  void Do(const launcher::AckVerdict&);
  void Do(const launcher::Say&) {}
  void Do(const launcher::PrintReport&) {}
  void Do(const launcher::EndJob&);
  void Do(const launcher::DrainLogs&);
  void Do(const launcher::ExitAgent& action);

  const Scenario& scenario_;
  Trace& trace_;
  const Setup setup_;
  launcher::AgentCore core_;
  Random random_;
  SimWorkers workers_;
  SimContact contact_;
  std::deque<launcher::AgentEvent> inbox_;
  bool is_stepping_ = false;
  bool is_scale_up_asked_ = false;  // of the workers that were prepared last
  uint16_t store_port_ = 0;
  std::map<int, std::optional<int>> left_peers_;  // by pid
  TimePoint started_at_{};                        // its workers
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_AGENT_H_
