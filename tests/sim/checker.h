// Judges a run by what was said, heard, started and ended in it, never by what the product's own
// objects remember. The names S1..S17 and P1..P8 are those of docs/internals/simulator.md.
#ifndef DDPRUN_TESTS_SIM_CHECKER_H_
#define DDPRUN_TESTS_SIM_CHECKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/scenario.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

// What happened, so that a test can show that it saw what it is about.
struct Tally {
  int rounds = 0;
  int successes = 0;
  int failures = 0;
  int given_up = 0;
  int losses = 0;
  int coordinator_starts = 0;
  int readopted = 0;   // rounds that went on under another start of the coordinator
  int restarts = 0;    // charged rounds
  int stops = 0;       // jobs that a user ended
  int given_back = 0;  // restarts
  int limited = 0;     // jobs that a limit of restarts ended
  int bad_nodes = 0;   // hosts that were put into quarantine
  int arrivals = 0;    // rounds that ended for nodes that had come
  int made_room = 0;   // ...as their workers had ended after their step
  int takeovers = 0;   // coordinators that etcd named behind another one
  void Add(const Tally& other);
};

class Checker {
 public:
  Checker(const Scenario& scenario, const Timeline& timeline)
      : scenario_(scenario), timeline_(timeline) {}

  void OnFault(const Fault& fault);
  void OnCoordinatorStarted(int life, int host, bool has_memory);
  void OnVerdictDurable(int life) { coordinators_[life].has_durable_verdict = true; }
  void OnRecordKept(int life, const rendezvous::Record& record);
  void OnPlaceTaken(AgentKey by, bool has_record, bool is_stolen);
  void OnStep(int life, TimePoint local, const rendezvous::RendezvousMachine& machine,
              const rendezvous::Event& event, const std::vector<rendezvous::Action>& actions);
  void OnAgentStarted(AgentKey key);
  void OnAgentKilled(AgentKey key);
  void OnAgentHeard(AgentKey key, const rendezvous::RendezvousEvent& event);
  void OnAgentDid(AgentKey key, const launcher::AgentAction& action);
  void OnAgentEnded(AgentKey key, int exit_code);
  void OnWorkerStarted(AgentKey key, const rendezvous::Assignment& assignment, int local_rank);
  void OnWorkerEnded(AgentKey key, RoundKey round, int rank, int exit_code, EndCause cause);
  // The run is over, or its time is.
  void AtEnd(bool is_over);
  void Broken(const std::string& what);

  const std::vector<std::string>& breaches() const { return breaches_; }
  const Tally& tally() const { return tally_; }

 private:
  // A worker's end as the coordinator was told of it.
  struct Told {
    AgentKey by;
    rendezvous::FailureReport report;
    int life = 0;
    TimePoint receipt;  // the coordinator's clock
    TimePoint date;     // likewise: when it happened, as far as can be told
    Duration blur;      // by so much the date may be off: the two clocks' rates differ
  };
  struct RoundNotes {
    rendezvous::Assignment any;
    std::map<AgentKey, rendezvous::Assignment> members;
    TimePoint sealed_at;
    int sealed_by = 0;           // that start of the coordinator
    int life = 0;                // the one that it goes on under
    std::set<AgentKey> started;  // their workers
    bool is_stopping = false;
    std::set<int> succeeded;         // ranks
    std::map<int, EndCause> failed;  // ranks that ended by themselves
    bool left_early = false;         // a rank left with 0 and others followed
    bool lost_agent = false;         // a member's process ended or was told to
    bool has_arrival = false;        // a node came that has no place in it
    bool has_bad_node = false;       // a member was refused as a bad node
    bool has_made_room = false;      // its workers ended as they were asked to, for a node
    std::vector<Told> told;
  };
  struct AgentNotes {
    RoundKey newest;
    std::set<int> living;           // ranks
    std::optional<RoundKey> round;  // of those
    bool was_signalled = false;
    bool is_dead = false;
    std::optional<TimePoint> died_at;  // killed
    std::optional<TimePoint> gone_at;  // killed, or at its end
    std::optional<int> exit_code;
    std::optional<rendezvous::Verdict> verdict;
    std::optional<TimePoint> lost_since;
    std::optional<TimePoint> ordered_at;  // it told its coordinator to stop the job at once
    int stolen_places = 0;                // of living leaders, since it met one elsewhere
  };
  struct CoordinatorNotes {
    std::map<SessionId, AgentKey> sessions;
    std::map<AgentKey, SessionId> newest;
    // Nodes, by their names, that were silent or closed for too long since a round was sealed, and
    // are back.
    std::set<int> back_late;
    std::set<AgentKey> elsewhere;  // with etcd: the nodes of the job that are on other machines
    std::map<AgentKey, TimePoint> heard;   // its own clock, from here on
    std::map<AgentKey, TimePoint> closed;  // by the agent's end, and it has not joined since
    std::map<AgentKey, TimePoint> came;    // its own clock: for a place that it has not got yet
    std::vector<TimePoint> grown;          // likewise: it ended a round for nodes that had come
    TimePoint started;
    TimePoint last_step;
    TimePoint amnesty;
    Duration uncounted{0};                     // all time so far in which it did not run
    std::map<AgentKey, Duration> heard_after;  // ...when the node was heard last
    TimePoint last_round;                      // when a round last was sealed or ran
    bool has_stepped = false;
    bool has_durable_verdict = false;
    int host = -1;
    std::optional<TimePoint> verdict_recorded;      // its own clock
    std::map<std::string, TimePoint> quarantine;    // hosts, until when by its own clock
    std::map<AgentKey, rendezvous::Health> health;  // what each said last
  };
  struct Trouble {
    int node = 0;  // -1: the coordinator
    FaultKind kind = FaultKind::kBreakStream;
    TimePoint from;
    TimePoint to;
  };

  // checker_rounds.cc
  void HearEvent(int life, TimePoint local, const rendezvous::Event& event);
  void OnAssign(int life, const rendezvous::Assign& action, std::set<RoundKey>& sealed);
  void CheckSealed(const RoundKey& key);
  void CheckCharge(const RoundKey& key);
  void CheckGivenBack(const RoundKey& key, int given_back);
  void CheckBackoff(const RoundNotes& round, const RoundNotes& last);
  void OnStop(const RoundKey& key, const std::string& how);
  std::string WhyMayStop(const RoundNotes& round) const;
  // Those that have come to the coordinator for a place, and that it may not know to be gone.
  std::vector<AgentKey> Waiting(const CoordinatorNotes& notes, const RoundNotes& round) const;
  void CheckArrival(int life, TimePoint local, const RoundNotes& round);
  void CheckEviction(int life, TimePoint local, AgentKey key);
  // Not heard for three times that a return takes: no more is forgiven, however bad it is.
  bool WasSilentForLong(const CoordinatorNotes& notes, TimePoint local, AgentKey key) const;
  // With etcd, of a leader whose nodes elsewhere were `before` its step.
  void CheckMajority(int life, TimePoint local, const std::set<AgentKey>& before,
                     const std::set<AgentKey>& after);
  void CheckLostText(int life, TimePoint local, const std::string& text);
  // checker_end.cc
  void OnConclude(int life, const rendezvous::Conclude& action, const JobInstance& instance);
  void CheckSuccess(const RoundKey& key);
  void CheckFailure(const RoundKey& key, const rendezvous::Verdict& verdict, TimePoint local);
  // As many rounds as --max_same_failure allows ended by what looks like that failure.
  // The verdict of a job in which more nodes were lost than was allowed.
  bool IsOutOfLosses(const RoundKey& last, const rendezvous::Verdict& verdict) const;
  void CheckNotBad(int life, AgentKey key);
  bool HasFailedAlike(const RoundKey& last, const rendezvous::FailureReport& named) const;
  void OnRefuse(int life, TimePoint local, const rendezvous::Refuse& action);
  void CheckExit(AgentKey key, const AgentNotes& agent);
  bool HadTrouble(int node, Duration window) const;
  bool WasCut(int node, Duration window) const;
  // A verdict that was told, as etcd did not answer, and is not kept there.
  bool IsUnkept(const JobInstance& instance) const {
    if (!scenario_.is_elected) return false;
    const auto kept = kept_verdicts_.find(instance);
    return kept == kept_verdicts_.end() || !(kept->second == verdicts_.at(instance));
  }
  // What was known of that job is not, and by no fault of a coordinator.
  bool IsForgotten(const JobInstance& instance) const {
    return scenario_.is_elected ? forgotten_.contains(instance) : has_forgotten_;
  }
  // A round of a fixed number of nodes, each worker started once.
  bool EndsWithItsFirstNode() const {
    return scenario_.policy.max_restarts == 0 &&
           (scenario_.policy.is_static || scenario_.policy.min_nodes == scenario_.policy.max_nodes);
  }

  const Scenario& scenario_;
  const Timeline& timeline_;
  std::vector<std::string> breaches_;
  uint64_t steps_ = 0;
  Tally tally_;
  std::map<RoundKey, RoundNotes> rounds_;
  std::map<AgentKey, AgentNotes> agents_;
  std::map<int, CoordinatorNotes> coordinators_;
  std::vector<Trouble> troubles_;
  std::map<JobInstance, RoundKey> last_sealed_;
  std::map<JobInstance, rendezvous::Verdict> verdicts_;
  std::map<JobInstance, RoundKey> concluded_;  // by these verdicts
  std::set<JobInstance> ordered_;              // ...to stop at once, as their coordinators heard
  bool is_end_wanted_ = false;                 // ...after the step, as a user did
  bool has_forgotten_ = false;  // a coordinator was started without what the one before knew
  std::set<JobInstance> lost_verdicts_;  // ...among it these jobs' ends
  // With etcd:
  std::map<JobInstance, int> kept_restarts_;  // that a record of the job has counted
  std::map<JobInstance, rendezvous::Verdict> kept_verdicts_;
  std::vector<TimePoint> led_since_;  // each leader
  bool found_record_ = false;         // as the place was taken last
  std::set<JobInstance> forgotten_;   // of which no record was there for the next leader
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_CHECKER_H_
