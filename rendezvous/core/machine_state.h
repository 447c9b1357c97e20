// What the rendezvous machine remembers, and its transitions. Only for the files of the machine
// itself and for tests that look into it. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_MACHINE_STATE_H_
#define DDPRUN_RENDEZVOUS_CORE_MACHINE_STATE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/core/arrivals.h"
#include "rendezvous/core/bad_nodes.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/core/rendezvous_machine.h"

namespace ddprun::rendezvous {

// The driver is asked for a step at least this often while there are members...
inline constexpr Duration kTick = std::chrono::seconds(1);
// ...so a longer gap between steps is time in which the coordinator itself did not run.
inline constexpr Duration kStall = std::chrono::seconds(2);
// What waits in our queue for so long shows that this process lags.
inline constexpr Duration kLag = std::chrono::seconds(1);
// What waited in our queue while it did not run is read within this.
inline constexpr Duration kBacklog = std::chrono::milliseconds(100);
// Waiting nodes hear of a changed reason at most this often: a thousand nodes that join one after
// the other must not cost a million messages.
inline constexpr Duration kTellInterval = std::chrono::seconds(1);

enum class Phase {
  kOpen,        // a round is formed
  kReadopting,  // the nodes of a round that an earlier coordinator sealed come back
  kSealed,
  kDraining,
  kClosed,
};

enum class DrainCause {
  kFailure,  // a worker failed: charged, or the end of the job
  kArrival,  // nodes came and there is room
  kLoss,     // a node left, is lost, or runs no workers of the round any more
};

// A rank that exited with 0, on our own clock.
struct EarlyExit {
  int rank = 0;
  TimePoint date;
};

// One node's place in the sealed round. Outlives the node's membership.
struct Seat {
  Assignment assignment;
  int local_world_size = 1;
  uint16_t store_port = 0;
  std::optional<EarlyExit> first_success = {};
  std::optional<TimePoint> succeeded_at = {};  // all its workers have
  StopRead stop_read = StopRead::kNo;          // ...and why
};

// An age counts the way of its message as half a round trip, so what failed at once may seem to
// have failed before the round began; two of those must not be taken as of the same moment.
inline constexpr Duration kDateSlack = std::chrono::seconds(1);
// Epochs and rounds from here on are not taken over from a node. One from the time of day is below
// it until the year 2112.
inline constexpr uint64_t kClaimLimit = uint64_t{1} << 52;
// How old a report of a round can be that an earlier coordinator sealed.
inline constexpr Duration kOldestReport = std::chrono::hours(24);

// How long the node of a peer whose leaving is all that is known may take to say why it left: it
// was stopped or is busy, as an agent says a failure at once. The end that an abort follows from
// may take as long: an agent gives it a second.
inline constexpr Duration kPeersWord = std::chrono::seconds(2);

// How a node goes.
enum class Departure {
  kLost,       // or for a reason of its own
  kPreempted,  // it was told to end
  kBad,        // it was taken out
};

struct RoundSize {
  int nodes = 0;
  int ranks = 0;
};

struct DatedFailure {
  NodeId reporter;
  FailureReport report;
  TimePoint date;  // receipt minus age, on our own clock
  // The worker says that it ended because a peer had left.
  bool is_consequence() const { return report.left_peer.has_value(); }
  // Whether `other`, which may have ended before, follows from this one.
  bool explains(const DatedFailure& other) const {
    if (is_consequence()) return false;
    return other.is_consequence() || (MayFollow(other.report) && report.has_own_cause);
  }
};

// kSealed: what is done for nodes that came since the round was sealed. A review looks at them.
struct Growth {
  TimePoint review_at = TimePoint::max();
  std::optional<TimePoint> due = {};  // the restart; empty: no node waits for one
  bool is_held_back = false;          // until then, by ArrivalLog::kMaxRestarts
  bool is_asked = false;              // ScaleUp::kGraceful: the workers were
  std::string reason = {};            // "node b joined"
};

// A node that was refused, and why: told to those that wait for it.
struct RefusedNode {
  std::string host;
  std::string why;
};

struct RendezvousMachine::State {
  State(std::optional<Policy> policy_in, Beginning beginning, TimePoint now,
        std::optional<Election> election_in);

  const std::optional<Election> election;  // nullopt: not by etcd
  std::string resignation;

  Policy policy;  // until has_policy only the run's id, where it is known
  bool has_policy = false;

  JobInstance instance;
  Epoch own_epoch;  // of the rounds that are sealed here: greater than every one heard of
  // Remembered, given out, or taken from a node's held round: from here on it is the job's.
  bool is_instance_settled = false;
  // It is from before us: earlier coordinators may have given out what we know nothing of.
  bool is_instance_inherited = false;
  Epoch epoch;                // of the last round; own_epoch before the first
  Round round;                // the last one: sealed here or adopted
  RoundSize round_size;       // of that round
  int left_of_round = 0;      // of its nodes, those that have said that they leave
  bool is_readopted = false;  // an earlier coordinator sealed it
  TimePoint round_began;      // what its nodes report is not dated earlier
  TimePoint running_since;    // under this coordinator
  // Its nodes that are not in the job any more, and why: "node b is lost: silent for 10 s".
  std::map<NodeId, std::string> gone;
  Phase phase = Phase::kOpen;
  Membership members;
  int restart_count = 0;        // charged rounds
  bool is_restart_due = false;  // of the last one: its restart has not begun
  RestartsSpent spent;
  BadNodeList bad_nodes;
  // How long the verdict waits to be durable: what hangs must not hold up the end for good.
  const Duration record_limit;
  TimePoint last_step;
  TimePoint stall_began;  // the latest time in which the coordinator itself did not run
  TimePoint stall_ended;
  TimePoint next_lag = TimePoint::min();  // when one is noted again: to note it takes a walk
  std::vector<Action> actions;            // of the step in progress
  uint64_t ignored_messages = 0;          // stale, or from nobody we know
  uint64_t reviews = 0;                   // that looked at every node

  Round round_floor;  // coordinators of this job gave out rounds up to this one
  // There was an earlier coordinator: the first round waits for nodes that it gave one.
  bool owes_hold = false;

  // kOpen.
  FormingRound forming;
  std::optional<TimePoint> below_minimum_since;
  // Nodes of a round that this coordinator knows nothing of may yet attach: of a forgotten one...
  TimePoint hold_until;
  // ...and of one that can go on.
  TimePoint restart_hold_until;
  TimePoint backoff_until;           // --restart_backoff
  std::vector<RefusedNode> refused;  // the latest, at most kNamedNodes
  QuorumVerdict quorum;

  // kOpen, kDraining: a review looks at every node. One is due for what nodes have done...
  bool needs_review = true;
  TimePoint next_review = TimePoint::min();  // ...but not before, where they are many
  TimePoint review_by;                       // kDraining: ...and for what time alone has done

  // kReadopting, kDraining while nodes are missing, and kOpen while others are awaited.
  TimePoint readopt_until;
  TimePoint readopt_since;   // earlier by what did not count before
  TimePoint leader_back_by;  // the node of a leader whose process is gone has less time
  std::set<NodeId> back;     // nodes of a readopted round that have come; some may have left since

  Growth growth;
  ArrivalLog arrivals;

  // kReadopting, kSealed, kDraining. The rest is counted from it, so that no event costs a walk.
  std::map<NodeId, Seat> seats;
  std::map<int, NodeId> seat_of_rank;  // by node rank
  int seated_ranks = 0;
  size_t succeeded_seats = 0;  // all workers have
  bool has_success = false;    // a rank has

  // kDraining.
  TimePoint drained_at;
  TimePoint name_cause_at;
  TimePoint health_awaited_until;
  DrainCause drain_cause = DrainCause::kLoss;
  bool is_preemption = false;  // a loss: the node was told to end
  std::string drain_reason;
  std::optional<DatedFailure> first_failure;  // closest to the cause of those seen so far, by date
  std::optional<DatedFailure> own_cause;      // the first that has a cause of its own

  std::optional<FailureFact> last_failure;  // of the newest round that one has ended

  // kClosed.
  std::optional<Verdict> verdict;
  bool has_begun_closed = false;  // who is yet to hear the verdict is unknown
  bool is_given_up = false;       // told by refusals, recorded nowhere
  bool is_told = false;           // the verdict is durable, or the disk has had its time
  std::set<NodeId> unacknowledged;
  // Nodes of a round that was being taken up when the job ended: how many had not come back, and
  // which have since.
  size_t missing_at_end = 0;
  std::set<NodeId> back_after_end;
  TimePoint end_at;  // when it is told, and then when all is over, in any case
  bool is_finished = false;

  // That of the nodes that are in the job; forgotten with the last of them, after which those of
  // another step may take the job up.
  ClusterPlace cluster;
  std::set<int> step_nodes;  // those of that step, by number, that have sent an agent

  // Since when the last node of a job that had some is gone.
  std::optional<TimePoint> empty_since;

  // Why the workers of all nodes are asked to end after their step; empty: they are not.
  std::string stop_reason;

  // What waiting nodes are to be told.
  bool needs_telling = false;  // the reason may have changed
  bool has_newcomer = false;   // somebody has not been told anything
  TimePoint next_telling;

  // The driver's loop (rendezvous_machine.cc).
  void AdoptPolicy(Policy given);
  void ForgiveStall(TimePoint now);
  void NoteLag(TimePoint now, Duration lag);
  void On(TimePoint now, const HeartbeatReceived& event) { Hear(now, event.stamp, event.is_stuck); }
  // What is asked and answered is the desk's (question_desk.h), and shows that the node lives.
  void On(TimePoint now, const HealthChecked& event);
  void On(TimePoint now, const QuestionAsked& event) { Hear(now, event.stamp); }
  void On(TimePoint now, const AnswerGiven& event) { Hear(now, event.stamp); }
  void On(TimePoint now, const Recorded&) { TellVerdict(now); }
  void On(TimePoint, const TimePassed&) {}
  // The member whose session it is, heard whatever round it names; else null, counted.
  Member* Hear(TimePoint now, const Stamp& stamp, bool is_stuck = false);
  void Advance(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

  // Who may join (machine_admit.cc). An empty text: nothing is wrong.
  std::optional<Refuse> CheckAdmission(TimePoint now, const NodeJoined& event) const;
  static std::string FindOtherRelease(const NodeInfo& node);
  std::string FindDifference(const NodeJoined& event) const;
  std::string FindTakenRank(const NodeJoined& event) const;
  std::string FindOtherCluster(const NodeInfo& node) const;
  std::string FindOtherProgram(const NodeJoined& event) const;
  // ...by a node that may be gone, which its evict time shows.
  bool IsRankInDoubt(TimePoint now, const NodeJoined& event) const;
  // Another node that was started with the rank of this one.
  const Member* OtherOfRank(const NodeInfo& node) const;
  std::string FindFalseClaim(const NodeJoined& event) const;
  // Whether a coordinator of this job can have given out the round, or none is claimed.
  // REQUIRES: the instance is ours.
  bool MayBeGivenOut(const Stamp& stamp) const;
  const Policy& PolicyFor(const NodeJoined& event) const {
    return has_policy ? policy : event.policy;
  }
  // Nodes of the step are on their way here: each is told the end of this job once.
  bool AwaitsNodesOfStep() const;
  void NoteNodeOfStep(const NodeInfo& node);
  void NoteRefusal(const NodeInfo& node, const std::string& why);

  // Joining and going (machine_join.cc).
  void On(TimePoint now, const NodeJoined& event);
  // A session that the new one replaces is closed.
  Member& Admit(TimePoint now, const NodeJoined& event);
  // Whether it raised what is known here.
  bool LearnRestarts(const NodeJoined& event);
  // Whether it names a round that no coordinator can have given out as far as is known here.
  bool LearnFromStamp(TimePoint now, const NodeJoined& event);
  void AdoptRunning(TimePoint now, const NodeJoined& event, bool is_unknown_round, Member& member);
  void StopStale(TimePoint now, const NodeJoined& event, Member& member);
  void AdoptWaiting(TimePoint now, const Stamp& stamp, Member& member);
  void On(TimePoint now, const NodeLeft& event);
  void On(TimePoint now, const SessionBroken& event);
  void EvictSilent(TimePoint now);
  std::string WhyLost(TimePoint now, const Member& member) const;
  void RemoveNode(TimePoint now, const NodeId& id, const std::string& reason,
                  Departure departure = Departure::kLost);

  // Arrivals (machine_arrivals.cc).
  //
  // The node waits, without a place in the last round.
  void NoteArrival(TimePoint now, Member& member);
  void ReviewArrivalsSoon(TimePoint now);
  void ReviewArrivals(TimePoint now);
  void TellToScaleUp(const Member& member);
  // REQUIRES: all workers of the round have succeeded.
  bool HasStoppedToScaleUp() const;
  // What a waiting node is told while a round runs, and when its wait ends.
  struct Wait {
    std::string topic;
    std::optional<TimePoint> deadline = {};
  };
  Wait WaitBesideRound(const Member& member, TimePoint now) const;

  // Bad nodes (machine_bad_nodes.cc).
  //
  // Why the node is bad, by its own check. Empty: it is not.
  std::string WhyBad(const NodeInfo& node) const;
  // Turns a node away that is bad, or whose host is in quarantine. False: it may come in.
  bool TurnAway(TimePoint now, const NodeJoined& event);
  // From now on no agent of the host is let in, and those that wait go. False: the job is over, as
  // this is one bad node too many.
  bool Quarantine(TimePoint now, const std::string& host, const std::string& why);
  void TakeOut(TimePoint now, const NodeId& id, const std::string& why);
  // The job cannot go on without that node.
  void EndWithCoordinator(TimePoint now, const std::string& why);
  bool HasCoordinator(const std::string& host) const;
  // Whether a node of the round may be found bad, which would be the cause of its end.
  bool AwaitsHealth(TimePoint now) const;
  Duration LongestCheck() const;  // beside the workers' end
  // The failure is one too many of its host: true, and the host is taken out.
  bool TakeOutForFailures(TimePoint now);
  // Workers are started once: nothing is gained by a restart that cannot be.
  bool IsStartedOnce() const {
    return policy.max_restarts == 0 && NodesNeeded(policy) == policy.max_nodes;
  }
  std::string BadHostsText(TimePoint now) const;

  // A round of an earlier coordinator (machine_readopt.cc).
  bool MayReadopt(const Stamp& stamp) const;
  bool IsNewer(const Stamp& stamp) const;
  bool IsMissingSeats() const;
  bool MayMissingCome(TimePoint now) const {
    const TimePoint until = IsOnlyGoneLeaderMissing() ? leader_back_by : readopt_until;
    return now < until || members.IsQuiet(now);
  }
  bool IsLeaderMissing() const;
  bool IsOnlyGoneLeaderMissing() const;
  bool IsThisRound(const Stamp& stamp) const;
  std::string FindContradiction(const NodeJoined& event) const;
  void Readopt(TimePoint now, const NodeJoined& event, Member& member);
  // `nodes`: how many that round has.
  void BeginReadopting(TimePoint now, const Stamp& stamp, int nodes);
  void NoteBack(const Member& member);
  void TakeSeat(const Assignment& assignment, Member& member);
  void ClearSeats();
  // What the seats beside it say against a held place.
  std::string FindOverlap(const NodeJoined& event) const;
  void EndReadopting(TimePoint now);
  std::string MissingText() const;
  // Whether nodes of a round that was taken up, or of a newer one, may be on their way, and
  // somebody waits who would take their place.
  bool AwaitsHolders() const;

  // Rounds (machine_round.cc).
  TimePoint DateOf(TimePoint now, Duration age) const;
  void ReviewQuorum(TimePoint now);
  void SealRound(TimePoint now, bool takes_paused);
  // Who has no place in this round is a spare like any other.
  void ForgetOldRanks();
  void DrainRound(TimePoint now, DrainCause cause, const std::string& reason);
  void StopRunning(const std::string& reason);
  // Of the round that is draining: the abort that ended it may follow from another rank's end.
  bool IsCauseWanted() const;
  // What is to be named. REQUIRES: there is a first failure.
  const DatedFailure& Cause() const;
  void ForgetFailures();
  // A rank of the round has exited 0, or all are asked to: nobody joins it any more.
  bool IsFinishing() const { return !stop_reason.empty() || has_success; }
  // A node that comes now gets a new round for all.
  bool HasRoom() const;
  void On(TimePoint now, const WorkersFailed& event);
  void On(TimePoint now, const FirstWorkerSucceeded& event);
  void On(TimePoint now, const WorkersSucceeded& event);
  void CloseIfAllSucceeded(TimePoint now);
  bool MayBeConsequence(TimePoint now, const NodeId& id, const Member& member) const;
  static Duration ReviewPause(size_t nodes);
  bool MayMoreBeReported() const;
  bool AwaitsPeersWord(TimePoint now) const;
  bool IsCauseUncertain(TimePoint now) const;
  // Ends the drain once its cause is settled.
  void ReviewDrain(TimePoint now);
  // What its end costs (machine_charge.cc).  REQUIRES: the round has drained, its cause is known.
  void ChargeFailure(TimePoint now);
  void ChargeLoss(TimePoint now);
  // Whether its end is to be counted, which is done once.
  bool TakeCharge();
  // As agents are told: with those that were given back.
  int MaxRestarts() const {
    constexpr int kMost = std::numeric_limits<int>::max();
    return policy.max_restarts > kMost - spent.given_back ? kMost
                                                          : policy.max_restarts + spent.given_back;
  }
  void OpenRound(TimePoint now);
  // The member whose session it is when the stamp names the current round; else null, counted.
  Member* CurrentMember(TimePoint now, const Stamp& stamp);
  // Whether the rank is one of the node's in the round; if not, its message is ignored.
  bool IsOwnRank(const Member& member, int rank);

  // The end (machine_tell.cc).
  void CloseJob(TimePoint now, Verdict end);
  void TellVerdict(TimePoint now);
  void WriteRecord();
  void GiveUp(const std::string& reason);
  void AnswerAfterEnd(TimePoint now, const NodeJoined& event);
  void On(TimePoint now, const VerdictAcked& event);
  void FinishWhenDone(TimePoint now);
  void On(TimePoint now, const StopOrdered& event);
  JobFacts Facts(TimePoint now) const;
  FailureFact FactOf(const DatedFailure& failure) const;

  // Telling those that wait (machine_tell.cc).
  std::string WaitTopic() const;  // without what time alone changes: it is news when this changes
  std::string FormingText(TimePoint now) const;
  std::string GoneText() const;
  std::string RefusedText() const;
  std::string EarlyExitText(const DatedFailure& failure) const;
  std::string ReadoptingText() const;
  std::string ShrinkText(const Assignment& next) const;
  void TellWaiters(TimePoint now);
  std::optional<TimePoint> JoinDeadline() const;  // when the job is given up
  std::optional<TimePoint> WaitDeadline() const;  // that, or when it goes on without the missing
};

// Access to the state for tests.
struct MachineInspector {
  using State = RendezvousMachine::State;
  static const State& Look(const RendezvousMachine& machine) { return *machine.state_; }
};
using State = MachineInspector::State;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MACHINE_STATE_H_
