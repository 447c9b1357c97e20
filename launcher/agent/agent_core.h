// Decides what one node's agent does: when it joins, starts, stops, and with which code it ends.
// [pure]
//
// The agent's driver (agent.h) feeds it facts from the rendezvous, the worker group, signals, file
// threads and timers, and carries out the actions in the order given. ARCHITECTURE.md draws its
// states.
#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_CORE_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_CORE_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_events.h"
#include "launcher/agent/worker_end.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// What the last messages may take, the coordinator's wait for acknowledgements included.
inline constexpr Duration kContactTimeout = std::chrono::seconds(11);

struct AgentPolicy {
  std::string job = "this job";  // as a sentence calls it
  int local_world_size = 1;
  int min_nodes = 1;
  int max_nodes = 1;
  // SIGTERM to SIGKILL, on every path.
  Duration shutdown_timeout = std::chrono::seconds(30);
  // How long workers live on without a word from the coordinator.
  Duration orphan_timeout = std::chrono::seconds(600);
  // After how long without a word the coordinator takes a node for lost.
  Duration evict_after = std::chrono::seconds(10);
  // How long a node whose workers all succeeded waits for a coordinator that it lost.
  Duration exit_barrier_timeout = std::chrono::seconds(300);
  // How long the coordinator must be gone before its ranks count as gone, too.
  Duration gone_grace = std::chrono::seconds(3);
  // From a lost contact until the user is told.
  Duration lost_notice_delay = std::chrono::seconds(5);
  // Of --preempt_signal (0: none), for what is said, and --requeue_code.
  int preempt_signal = 0;
  std::optional<int> requeue_code{};
  bool gets_restarts_back = false;  // the coordinator may have more than it has told
  // ddprun check: what a rank has found is told at the end, and no failure.
  bool is_check = false;
  // --health-check: before each round, and again after each such pause in which this node waits.
  std::optional<Duration> health_pause{};
  // It measures, so nothing else of this job may run beside it: not the workers' end either.
  bool is_health_measured = false;
  // Numbers beyond INT, TERM, HUP and QUIT: --signals_to_handle.
  std::vector<int> more_stop_signals{};
  // A worker that dies of SIGTERM, SIGINT, SIGHUP or one of these, not sent by us, is judged later:
  // the agent may be about to get that signal too, and then it was a stop, not a failure.
  Duration signal_judgement_delay = std::chrono::milliseconds(250);
  // A worker that aborts, or says that it has lost a peer, may end before that peer, which is the
  // cause. If the end of such a peer is under way, it is waited for so long...
  Duration ending_patience = std::chrono::seconds(1);
  // ...and so long if none can be seen and a worker says that it has lost one.
  Duration unseen_patience = std::chrono::milliseconds(300);
  // A verdict because another node left waits this long for a signal of our own: whoever stops a
  // whole job stops one node first.
  Duration own_signal_window = std::chrono::seconds(1);
  // A wait that is over sooner is not worth a line.
  Duration waiting_notice_delay = std::chrono::milliseconds(500);
  // From a failure that ends the job until the user is told that other workers take their time.
  Duration stopping_notice_delay = std::chrono::seconds(2);
  // From a failure's report until the user is told of it here, as the job has said nothing of it.
  // More than the 2 s in which the coordinator may wait for another's word.
  Duration failure_notice_delay = std::chrono::seconds(3);
  // How often a wait that goes on is told again, with the time it has left.
  Duration waiting_notice_interval = std::chrono::seconds(60);
  // How long the workers' log files may take to be made.
  Duration file_timeout = std::chrono::seconds(600);
  // kLeaving: what EndJob asks for. Each part has a limit of its own that is shorter.
  Duration leave_timeout = std::chrono::seconds(15);
  // How long whoever reads our output may take for the last of it.
  Duration console_patience = std::chrono::seconds(60);
  // What is left of both when a signal comes meanwhile.
  Duration haste = std::chrono::milliseconds(500);
};

class AgentCore {
 public:
  explicit AgentCore(AgentPolicy policy);

  // Applies one event. Same history, same actions, same order.  REQUIRES: now never decreases.
  std::vector<AgentAction> Step(TimePoint now, const AgentEvent& event);
  // When Step(now, AgentTimePassed{}) would next act.
  std::optional<TimePoint> NextDeadline() const;
  // From EndJob on.
  bool is_leaving() const { return state_ == State::kLeaving || state_ == State::kDone; }
  // Whether the end of the last round may be the job's: no restart is left, so a verdict follows a
  // failure.
  bool is_verdict_due() const { return assignment_.round.value > 0 && !HasBudget(); }

 private:
  enum class State {
    kIdle,
    kJoining,
    kPreparing,
    kRunning,
    kSucceeded,
    kStopping,
    kLeaving,
    kDone
  };
  // A death that another one may explain: by a signal that may have been meant for the whole job,
  // or one that may follow.
  struct Suspicion {
    WorkerEnd end;
    TimePoint judge_at;
    TimePoint since{};
  };
  struct Notice {
    std::string reason;
    std::optional<TimePoint> deadline;
    std::optional<TimePoint> say_at;  // none: it has been told, and there is no more to tell
    bool is_of_failure = false;       // of this node
  };
  // What is known of own_failure_, and who has said it to the user.
  struct FailureNews {
    rendezvous::FailureReport report;
    TimePoint tell_at;       // by us
    bool is_told = false;    // by us
    bool is_heard = false;   // by the coordinator, which stops the round
    bool is_passed = false;  // the job's own word tells of it, and the job goes on
  };
  struct Contact {
    std::optional<TimePoint> lost_since{};
    std::optional<TimePoint> gone_at{};  // from then on its ranks count as gone, too
    std::string reason{};
    bool is_lasting = false;
    bool is_expired = false;                      // a certificate: there is no way back
    bool is_of_node = false;                      // this node's own trouble
    std::optional<TimePoint> unanswered_since{};  // by its machine
    TimePoint until{};                            // waited for until then, however long it is lost
    bool is_told = false;
  };
  // kLeaving: what has been answered, and when the rest is not waited for any more.
  struct Leaving {
    TimePoint by;
    std::optional<bool> are_leftovers_gone{};  // none: not answered
    bool is_contact_ended = false;
    bool is_report_written = false;
    bool is_draining = false;
    bool is_hasty = false;
    bool is_clean = true;
  };

  void On(const AgentStarted&);
  void On(const rendezvous::Waiting& event);
  void On(const rendezvous::Assigned& event);
  void On(const rendezvous::Drained& event);
  void On(const rendezvous::Concluded& event);
  void On(const rendezvous::ContactLost& event);
  void On(const rendezvous::ContactMade& event);
  void On(const rendezvous::ContactRestored&);
  void On(const rendezvous::RendezvousFailed& event);
  void On(const WorkersPrepared& event);
  void On(const WorkerEnd& end);
  void On(const FailureDescribed& event);
  void On(const EndingFound& event);
  void On(const WorkersGone& event);
  void On(const rendezvous::StopRequested& event);
  void On(const StopAsked& event);
  void On(const StopOrder& event);
  void On(const HangJudged& event);
  void On(const HealthFound& event);
  void On(const SignalReceived& event);
  void On(const LocalFailure& event);
  void On(const AgentTimePassed&);
  void On(const LeftoversGone& event);
  void On(const ReportWritten&);
  void On(const rendezvous::ContactEnded&);
  void On(const LogsDrained& event);

  // Transitions, named for where they go.
  void Join();
  void AskForPlace();
  void Prepare(const rendezvous::Assignment& assignment);
  void Run();
  void Succeed();
  void Stop(int signal, bool may_be_for_all = false);
  void Leave();
  void Drain();
  void Exit();
  // From kStopping, once nothing of the round is left to do.
  void GoOn();

  // agent_core_health.cc
  void BeginHealthCheck();
  void EndHealthCheck();
  void ForgetHealth();

  // One line for the user.
  template <typename... Parts>
  void Tell(const Parts&... parts) {
    actions_.push_back(Say{absl::StrCat(parts...)});
  }
  // Something went wrong that is no worker's failure; one that stands unanswered comes first.
  void PlanEndOfTrouble(int exit_code, const std::string& message);
  // A failure of ours that ends nothing: the coordinator has heard of it and gone on, or it came of
  // the coordinator's loss. Forgets it and returns "; of this node local rank 0 ended too: ...";
  // "": none.
  std::string TakeAnsweredFailure();
  void Fail(const WorkerEnd& end);
  void Describe(const WorkerEnd& end);
  void SuspectFollower(const WorkerEnd& end);
  // A rank of another node has aborted: the workers live on while the end of one is under way.
  void AwaitEnding();
  // Of a worker that is none of those.
  void EndWhileAwaiting(const WorkerEnd& end);
  bool IsFollowerSuspected() const;
  // Followers are judged, or the round is stopped, where no worker is left whose end is under way.
  void ReviewFollowers();
  void JudgeSuspicions();
  // The line on a failure of ours that the coordinator may not have heard of, when it is due.
  TimePoint FailureNoticeAt() const;  // TimePoint::max(): never
  void TellOfFailure();
  // The report of a failure of ours with which this node ends, and which nobody else names.
  void ReportOwnFailure();
  void GiveNotice();
  // When to tell of the same wait again.
  std::optional<TimePoint> NextNotice() const;
  void TellOfGoneNode();
  void CheckContact();
  void TellOfLostContact();
  void Hurry(bool is_kill);
  void DrainWhenAnswered();
  void LeaveWithVerdict();
  void LeaveStopped();
  // To whoever waits for it, and for a stop at once to all. Comes before what ends this agent: the
  // answer is on its way by then.
  void AnswerOrder(bool is_after_step, std::string trouble = {});
  void Kill(const std::string& why);
  void HearAgain(const SignalReceived& event);
  void AskToScaleUp(const std::string& why);
  // A node that is asked to stop and waits for a place ends with --requeue_code. Whether it does.
  bool LeavePreempted();
  void SayStopping(const SignalReceived& event);
  // Of the round that is being prepared; `before`: the last one that this node was in.
  void SayWhatBegins(const rendezvous::Assignment& before);
  // `message`, with the loss of a coordinator that came before it and is why.
  std::string AfterLoss(const std::string& message) const;
  static bool IsStopOf(const rendezvous::Verdict& verdict) {
    return verdict.exit_code == rendezvous::kStoppedExitCode && !verdict.first_failure;
  }
  bool HasWorkers() const { return !are_workers_gone_; }
  bool IsInRound() const;
  bool HasBudget() const {
    return policy_.gets_restarts_back || assignment_.restart_count < assignment_.max_restarts;
  }
  // Workers are started once: with the ranks of the coordinator's node the job is over, also where
  // this node's own have failed meanwhile.
  bool IsOverWithCoordinator() const;
  bool IsCoordinatorGone() const { return contact_.gone_at && assignment_.coordinator_is_member; }
  // Until SIGKILL, of workers that are stopped or about to be.
  Duration GraceLeft() const {
    return state_ == State::kStopping ? kill_at_ - now_ : policy_.shutdown_timeout;
  }
  // "ranks 0, 3" of this node that live; "" where none does.
  std::string LiveRanks() const;
  // "the coordinator ... is lost: refused; its process is gone, and with it the ranks of node n1; "
  std::string GoneText() const;
  std::string Coordinator() const;  // "the coordinator at node1:29400"
  std::string LossText() const;     // the same and "was lost (...)", with the reason
  // TimePoint::max(): never.
  TimePoint ContactDeadline() const;
  TimePoint LostNoticeAt() const;
  // Of a node that joins, whose coordinator's process is gone, and which was not told so.
  TimePoint GoneNoticeAt() const;

  const AgentPolicy policy_;
  State state_ = State::kIdle;
  TimePoint now_{};
  std::vector<AgentAction> actions_;

  rendezvous::Assignment assignment_;  // of the newest round adopted
  TimePoint prepared_by_{};            // kPreparing
  std::set<int> live_;                 // local ranks whose end has not been heard of
  int succeeded_count_ = 0;            // workers of this round that exited 0
  bool are_workers_gone_ = true;
  TimePoint kill_at_{};  // kStopping: SIGKILL
  std::vector<Suspicion> suspicions_;
  // When a worker of this round may have followed; none: not known.
  std::optional<std::set<int>> ending_;
  std::optional<TimePoint> ending_by_;  // AwaitEnding: the round is stopped then
  // Since the last round began, and how the check goes.
  std::optional<rendezvous::HealthReport> health_;
  uint64_t health_checks_ = 0;
  bool is_checking_ = false;
  bool has_asked_ = false;                   // for a place: kJoining
  std::optional<TimePoint> check_again_at_;  // while it waits for one
  Contact contact_;
  bool had_contact_ = false;
  std::string coordinator_place_;  // "" where it has no port or is not known
  Leaving leaving_;

  // Failures of the round: what waits for a description, and what would be a cause if what we have
  // stopped for was none.
  int undescribed_ = 0;
  bool is_peer_blamed_ = false;
  std::vector<WorkerEnd> own_ends_;

  std::optional<EndJob> end_;  // once its workers are gone; none: it joins again
  std::optional<rendezvous::Verdict> verdict_;
  std::optional<TimePoint> verdict_holds_at_;  // a signal of our own before it counts instead
  std::optional<WorkerEnd> own_failure_;       // reported, and no verdict or new round yet
  std::optional<FailureNews> failure_news_;    // once it is described
  bool is_failure_answered_ = false;           // the coordinator has heard of it, and has gone on
  std::string loss_;  // of the coordinator whose process ended with our round; "": none
  int kill_signals_ = 0;
  std::string stop_asked_by_;          // "SIGUSR1", or as the user ordered it; "": nobody
  bool is_asked_to_scale_up_ = false;  // this round
  bool is_stop_by_user_ = false;       // whom no requeue code is for
  bool is_stop_passed_on_ = false;     // the coordinator has said so
  // Passed on to the coordinator, which may not have heard it.
  std::optional<TimePoint> told_stopping_at_;
  std::optional<StopOrder> ordered_;
  bool have_read_stop_ = false;  // workers of any round, and not only to scale up

  // What the user was told: of the wait for a place, or for the end of a failed worker's peers.
  std::optional<Notice> notice_;
  bool is_waiting_told_ = false;
  bool is_drained_ = false;  // the coordinator has said so
  bool is_drain_told_ = false;
  int restarts_told_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_CORE_H_
