// Every invariant of the rendezvous in one place, callable after any step. [pure]
// The numbers are those of docs/internals/simulator.md.
#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What must hold of the machine's state between steps. Empty: all of it does.
std::vector<std::string> CheckState(const RendezvousMachine& machine);

// Watches one machine from its start. It judges what was said (events in, actions out) from its
// own notes, not from the machine's, and the state by CheckState.
class InvariantChecker {
 public:
  explicit InvariantChecker(Policy policy) : policy_(std::move(policy)) {}

  // The coordinator was killed; the machine of the next one is watched from its start. What agents
  // have heard stays said.
  void OnRestart(bool remembers_end);

  // To be called after every step, in order. Returns what this step broke.
  std::vector<std::string> AfterStep(const RendezvousMachine& machine, const Event& event,
                                     const std::vector<Action>& actions);

 private:
  using Stamped = std::tuple<JobInstance, Epoch, Round>;
  struct RoundNotes {
    Assignment any;
    std::map<NodeId, Assignment> by_node;
    std::set<NodeId> succeeded;
  };
  struct NodeNotes {
    std::string source_addr;
    int local_world_size = 0;
    bool has_workers = false;  // an assignment was sent, and no join without workers since
    Stamped newest;
    JobInstance joined_with;
    std::string host;
    Health health = Health::kUnchecked;
    std::optional<TimePoint> came_at;  // for a place, which it has not got yet
    bool is_member = false;
    std::optional<TimePoint> arrived_at;  // beside a round that ran
    TimePoint paused_until;
    StopRead stop_read = StopRead::kNo;
  };

  void Hear(const Event& event, TimePoint now);
  void OnAssign(const Assign& action, std::set<Stamped>& sealed_now);
  void OnConclude(const RendezvousMachine& machine, const Conclude& action);
  void CheckSealed(const Stamped& stamp);
  void CheckSpares(const RendezvousMachine& machine, const RoundNotes& round);
  void CheckBudget(const RendezvousMachine& machine, const Event& event);
  void CheckEnd(const RendezvousMachine& machine, const Event& event, const Conclude& action);
  bool LimitsLosses() const {
    return policy_.limits.max_node_losses.has_value() ||
           policy_.limits.max_preemptions.has_value() || policy_.bad_nodes != BadNodeRules{};
  }
  void CheckArrival(const RendezvousMachine& machine);
  void NoteMembers(const RendezvousMachine& machine, const Event& event);
  void CheckNotBad(const RendezvousMachine& machine, const NodeId& id);
  // The first from its node of a step of which others are known.
  bool IsLateSpare(const ClusterPlace& place) const;
  void Broken(std::string what) { broken_.push_back(std::move(what)); }

  const Policy policy_;
  std::map<SessionId, NodeId> node_of_;
  std::map<NodeId, NodeNotes> nodes_;
  std::map<Stamped, RoundNotes> rounds_;
  // Joined this coordinator before the end, or were told it as nodes of the same step.
  std::map<NodeId, ClusterPlace> known_;
  // Those of the round that this coordinator sealed last that have been in the job ever since.
  std::set<NodeId> last_nodes_;
  std::map<std::string, TimePoint> quarantine_;  // hosts that were told to the site: until when
  std::vector<FailureReport> reported_;
  std::vector<TimePoint> grown_;              // this coordinator restarted a round for arrivals
  std::map<std::string, TimePoint> flapped_;  // hosts: one that arrived left its round
  bool had_round_ = false;
  std::optional<Verdict> verdict_;
  bool is_stop_ordered_ = false;  // at once
  bool is_over_ = false;
  bool is_finished_ = false;
  bool was_draining_ = false;
  std::optional<TimePoint> join_deadline_;
  bool is_recorded_ = false;          // a Record with the verdict was asked for
  std::optional<int> restart_count_;  // empty: not looked at since the start
  int invented_ = 0;                  // restarts that a node told and no failure had caused
  std::vector<std::string> broken_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_
