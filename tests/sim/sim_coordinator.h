// The coordinator's process: the product's machine, driven as Coordinator drives it.
#ifndef DDPRUN_TESTS_SIM_SIM_COORDINATOR_H_
#define DDPRUN_TESTS_SIM_SIM_COORDINATOR_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/rendezvous_machine.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"
#include "tests/sim/sim_leadership.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

// What is on its disk. Epoch 0: nothing.
struct CoordinatorFile {
  Epoch epoch;
  JobInstance instance;
  int restart_count = 0;
  rendezvous::RestartsSpent spent;
  rendezvous::BadNodesRecord bad_nodes;
  std::optional<rendezvous::Verdict> verdict;
};

class SimCoordinator final : public Process, public CoordinatorEnd {
 public:
  struct Start {
    int life = 0;   // 0, 1, ... in one run
    int host = -1;  // the node in whose agent it lives; -1: none
    SimClock clock;
    std::function<void()> finished;  // the job's end is known wherever it can be
    // With etcd: it begins once it leads; until then it only listens.
    SimEtcd* etcd = nullptr;
    int64_t seen_revision = 0;
    bool is_leader_gone = false;  // that leader's machine refused for it
    std::function<void(bool leads, const std::string& why)> began = nullptr;
    std::function<void(const std::string& why)> lost = nullptr;
    std::function<void(const std::string& why)> resigns = nullptr;
  };
  SimCoordinator(const Scenario& scenario, Timeline& timeline, Network& network, Trace& trace,
                 CoordinatorFile& file, Start start);

  int life() const { return start_.life; }
  int host() const { return start_.host; }
  // It listens, whether it runs or is stopped.
  bool is_listening() const { return is_alive() && is_port_open_; }
  // It greets who connects.
  bool is_greeting() const { return !is_paused() && machine_ != nullptr; }
  // It may speak for the job, and would `ahead` of the present.
  bool IsSpeaking(Duration ahead) const;
  // Where the others find it, with etcd.
  const rendezvous::Leader& place() const { return leadership_->self(); }
  // SIGKILL: the kernel closes its connections.
  void Kill();
  // The orderly end: the port is closed, and so are the connections.
  void End();
  // Likewise with etcd, where what it has there is seen to before the port is closed. One that does
  // not resign waits a second for the other nodes to leave, as Coordinator::Stop does.
  void EndThen(bool is_resigning, std::function<void()> then);

  // `then` happens in the process once it greets: now, or when it is continued, or never.
  void WhenGreeting(std::function<void()> then);

  // To hear one thing of what comes until then takes it `lag`.
  void Lag(Duration lag, TimePoint until);
  void Pause() override;
  void Resume() override;
  void Die() override;

  void HearUp(const StreamPtr& stream, const Up& up) override;
  void HearUpBroken(const StreamPtr& stream, bool is_by_peer) override;

 private:
  void AfterWork() override;
  void ReadFile();
  void TakePlace();
  void Begin(const rendezvous::Beginning& beginning);
  // When the coordinator may speak: now, or behind all that waits for it.
  void InTurn(std::function<void()> work);
  void TakeTurns();
  bool MayTell() const { return leadership_ == nullptr || leadership_->MayTell(); }
  void Apply(SessionId id, const rendezvous::Event& event, uint64_t sequence);
  void StepMachine(const rendezvous::Event& event);
  void EndNow();
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
  bool has_resigned_ = false;
  bool is_resigning_ = false;
  std::function<void()> ended_;  // set while it waits for the other nodes to leave
  bool is_port_open_ = true;
  TimePoint written_at_;                       // when the last record is in the file
  bool is_taken_up_ = false;                   // an earlier coordinator's job
  std::unique_ptr<SimLeadership> leadership_;  // null: not by etcd
  struct Turn {
    TimePoint heard_at;  // on the timeline
    std::function<void()> work;
  };
  std::deque<Turn> turns_;
  Duration lag_{0};
  TimePoint lags_until_;
  std::vector<std::function<void()>> greetings_;  // that wait for its beginning
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_COORDINATOR_H_
