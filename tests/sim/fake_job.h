// One machine with agents that are only names, and a driver that is only a loop over virtual time.
// Runs the invariants after every step. Transcripts and the random test stand on it.
#ifndef DDPRUN_TESTS_SIM_FAKE_JOB_H_
#define DDPRUN_TESTS_SIM_FAKE_JOB_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/types.h"
#include "tests/rendezvous/core/invariants.h"

namespace ddprun::rendezvous::testing {

struct FakeNode {
  NodeJoined hello;   // what it says when it joins
  SessionId session;  // its newest
  bool is_connected = false;
  bool is_silent = false;  // sends no heartbeats
  Assignment assignment;   // what it has adopted
  bool has_workers = false;
  int first_rank = 0;
  bool must_stop = false;  // was told to drain, has not joined again
  bool is_concluded = false;
  bool is_refused = false;

  JobInstance joined;  // of the coordinator that let it wait or gave it the assignment

  // As AgentRecord does: epoch and round belong to the job that they are of.
  Stamp stamp() const {
    if (joined != assignment.instance) return {session, {}, {}, joined};
    return {session, assignment.epoch, assignment.round, assignment.instance};
  }
};

class FakeJob {
 public:
  FakeJob(const Policy& policy, const Beginning& beginning);

  // The coordinator is killed and another one starts: from what it recorded, or with nothing.
  void Restart(bool keeps_file);
  // From now on no Record gets onto the disk.
  void HangDisk() { is_disk_hanging_ = true; }

  // Joins or joins again; with a new session when it has none or `is_new_session`.
  void Join(const std::string& name, bool is_running, bool is_new_session);
  void Break(const std::string& name, bool is_by_peer = false);
  void Leave(const std::string& name, const std::string& reason, bool is_by_signal = false);
  // Applies one event at the present and lets the nodes hear what came of it.
  void Feed(const Event& event);
  // Lets time pass as the driver does: a step at each deadline, a beat of each node per second.
  void Pass(Duration duration);
  // Lets time pass without a step: the coordinator did not run.
  void Stall(Duration duration) { now_ += duration; }

  // The node of that name, made on first use.
  FakeNode& node(const std::string& name);
  std::map<std::string, FakeNode>& nodes() { return nodes_; }
  const RendezvousMachine& machine() const { return *machine_; }
  const Policy& policy() const { return policy_; }
  TimePoint now() const { return now_; }

  // What was said since it was last taken, one line per action: "a: drain 1.1 ...".
  std::vector<std::string> TakeLines();
  // The same as actions.
  std::vector<Action> TakeActions();
  // What the steps so far broke.
  const std::vector<std::string>& broken() const { return broken_; }

 private:
  // Who is spoken to, and when if that is not when the command was given.
  std::string Prefix(const Action& action) const;
  void Hear(const Action& action);
  void Beat();

  const Policy policy_;
  std::unique_ptr<RendezvousMachine> machine_;
  InvariantChecker checker_;
  Record file_;  // what the coordinator has recorded
  uint64_t starts_ = 1;
  bool is_disk_hanging_ = false;
  TimePoint now_{};
  TimePoint next_beat_{std::chrono::seconds(1)};
  std::map<std::string, FakeNode> nodes_;
  std::map<SessionId, std::string> names_;
  uint64_t sessions_ = 0;
  bool is_passing_ = false;
  struct Said {
    std::string prefix;
    Action action;
  };
  std::vector<Said> said_;
  std::vector<std::string> broken_;
};

}  // namespace ddprun::rendezvous::testing

#endif  // DDPRUN_TESTS_SIM_FAKE_JOB_H_
