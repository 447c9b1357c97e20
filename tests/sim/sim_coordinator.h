// The coordinator's process: the product's machine, driven as Coordinator drives it.
#ifndef DDPRUN_TESTS_SIM_SIM_COORDINATOR_H_
#define DDPRUN_TESTS_SIM_SIM_COORDINATOR_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "rendezvous/core/rendezvous_machine.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

// What is on its disk. Epoch 0: nothing.
struct CoordinatorFile {
  Epoch epoch;
  JobInstance instance;
  int restart_count = 0;
  rendezvous::RestartsSpent spent;
  std::optional<rendezvous::Verdict> verdict;
};

class SimCoordinator final : public Process, public CoordinatorEnd {
 public:
  struct Start {
    int life = 0;   // 0, 1, ... in one run
    int host = -1;  // the node in whose agent it lives; -1: none
    SimClock clock;
    std::function<void()> finished;  // the job's end is known wherever it can be
  };
  SimCoordinator(const Scenario& scenario, Timeline& timeline, Network& network, Trace& trace,
                 CoordinatorFile& file, Start start);

  int host() const { return start_.host; }
  // It listens, whether it runs or is stopped.
  bool is_listening() const { return is_alive() && !has_ended_; }
  bool is_finished() const { return machine_->is_finished(); }
  // SIGKILL: the kernel closes its connections.
  void Kill();
  // The orderly end: the port is closed, and so are the connections.
  void End();

  // `then` happens in the process: now, or when it is continued, or never.
  void WhenRuns(std::function<void()> then) { Enter(std::move(then)); }

  void HearUp(const StreamPtr& stream, const Up& up) override;
  void HearUpBroken(const StreamPtr& stream, bool is_by_peer) override;

 private:
  void AfterWork() override;
  void Apply(SessionId id, const rendezvous::Event& event, uint64_t sequence);
  void StepMachine(const rendezvous::Event& event);
  void CarryOut(const rendezvous::Action& action);
  void Write(const rendezvous::Record& record);
  rendezvous::Stamp current() const;

  const Scenario& scenario_;

  Network& network_;
  Trace& trace_;
  CoordinatorFile& file_;
  const Start start_;
  std::unique_ptr<rendezvous::RendezvousMachine> machine_;
  std::map<SessionId, StreamPtr> sessions_;
  uint64_t last_session_ = 0;
  Random random_;
  bool has_ended_ = false;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_COORDINATOR_H_
