// Decides what one node's agent does: when it joins, starts, stops, and with which code it ends.
// [pure]
//
// The agent's driver (agent.h) feeds it facts from the rendezvous, the worker group, signals and
// timers, and carries out the actions in the order given. States:
//
//   kJoining -> kRunning -> kSucceeded -> kDone          workers ended with 0, the verdict came
//       ^          |            |
//       +-- kStopping <---------+                        a drain, a failure, a lost coordinator
//              |
//              +-> kDone                                 a signal, a local error, the verdict
#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_CORE_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_CORE_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

struct AgentPolicy {
  int local_world_size = 1;
  // SIGTERM to SIGKILL, on every path.
  Duration shutdown_timeout = std::chrono::seconds(30);
  // How long workers live on without a word from the coordinator.
  Duration orphan_timeout = std::chrono::seconds(600);
  // How long a node whose workers all succeeded waits for a coordinator that it lost.
  Duration exit_barrier_timeout = std::chrono::seconds(300);
  // How long the coordinator's port must refuse before its process counts as gone.
  Duration refused_grace = std::chrono::seconds(3);
  // Numbers beyond INT, TERM, HUP and QUIT: --signals_to_handle.
  std::vector<int> more_stop_signals;
  // A worker that dies of SIGTERM, SIGINT, SIGHUP or one of these, not sent by us, is judged later:
  // the agent may be about to get that signal too, and then it was a stop, not a failure.
  Duration signal_judgement_delay = std::chrono::milliseconds(250);
  // A wait that is over sooner is not worth a line.
  Duration waiting_notice_delay = std::chrono::milliseconds(500);
  // How often a wait that goes on is told again, with the time it has left.
  Duration waiting_notice_interval = std::chrono::seconds(60);
};

// One worker's end as the agent sees it.
struct WorkerEnd {
  int local_rank = 0;
  int pid = 0;        // 0: it could not be started
  int exit_code = 0;  // as `ddprun` would pass it on: 128+n for signal n, 126/127 for exec errors
  int signal = 0;     // 0: it exited by itself
  bool dumped_core = false;
  std::string message;  // "killed by signal 9 (SIGKILL)"
};

struct AgentStarted {};
struct WorkerEnded {
  WorkerEnd end;
  TimePoint at;
};
// Nothing of the workers' process groups is left.
struct WorkersGone {};
struct SignalReceived {
  int signal = 0;
  bool is_kill = false;  // a further one: at once
};
// Something of this machine failed: a store that cannot listen, a log file that cannot be made.
struct LocalFailure {
  int exit_code = 0;
  std::string message;
};
struct AgentTimePassed {};

using AgentEvent =
    std::variant<AgentStarted, rendezvous::Waiting, rendezvous::Assigned, rendezvous::Drained,
                 rendezvous::Concluded, rendezvous::ContactMade, rendezvous::ContactLost,
                 rendezvous::ContactRestored, rendezvous::RendezvousFailed, WorkerEnded,
                 WorkersGone, SignalReceived, LocalFailure, AgentTimePassed>;

// Close the old round's store, listen with a fresh one, and ask for a place in the next round.
struct JoinRound {};
struct StartWorkers {
  rendezvous::Assignment assignment;
};
// `signal` and SIGCONT to every group, SIGKILL after `grace`; WorkersGone follows.
struct StopWorkers {
  int signal = 0;
  Duration grace{0};
};
struct KillWorkers {};
struct ReportFailure {
  rendezvous::Assignment assignment;
  WorkerEnd end;
  TimePoint at;
};
struct ReportFirstSuccess {
  Round round;
  int rank = 0;  // the worker that exited 0
  TimePoint at;
};
struct ReportSuccess {
  Round round;
};
struct LeaveJob {
  std::string reason;
};
struct AckVerdict {};
// One line for the user.
struct Say {
  std::string text;
};
// The end of the job, for people: the first failure and what it last wrote.
struct PrintReport {
  rendezvous::Verdict verdict;
};
// Whose an exit code is: codes of workers and of ddprun overlap.
enum class ExitOwner {
  kNobody,  // success
  kWorker,
  kSignal,  // ddprun was stopped by it
  kDdprun,
};
// The last action ever.
struct ExitAgent {
  int exit_code = 0;
  ExitOwner owner = ExitOwner::kNobody;
  std::string reason = {};  // one sentence
};

using AgentAction = std::variant<JoinRound, StartWorkers, StopWorkers, KillWorkers, ReportFailure,
                                 ReportFirstSuccess, ReportSuccess, LeaveJob, AckVerdict, Say,
                                 PrintReport, ExitAgent>;

class AgentCore {
 public:
  explicit AgentCore(AgentPolicy policy);

  // Applies one event. Same history, same actions, same order.  REQUIRES: now never decreases.
  std::vector<AgentAction> Step(TimePoint now, const AgentEvent& event);
  // When Step(now, AgentTimePassed{}) would next act.
  std::optional<TimePoint> NextDeadline() const;
  // One sentence: the state and what it waits for.
  std::string Explain() const;
  bool is_done() const { return state_ == State::kDone; }

 private:
  enum class State { kIdle, kJoining, kRunning, kSucceeded, kStopping, kDone };
  // A death by a signal that may have been meant for the whole job.
  struct Suspicion {
    WorkerEnd end;
    TimePoint at;
    TimePoint judge_at;
  };
  struct Notice {
    std::string reason;
    std::optional<TimePoint> deadline;
    std::optional<TimePoint> say_at;  // none: it has been told, and there is no more to tell
  };
  struct Contact {
    std::optional<TimePoint> lost_since;
    std::optional<TimePoint> refused_since;
  };

  void On(const AgentStarted&);
  void On(const rendezvous::Waiting& event);
  void On(const rendezvous::Assigned& event);
  void On(const rendezvous::Drained& event);
  void On(const rendezvous::Concluded& event);
  void On(const rendezvous::ContactLost& event);
  void On(const rendezvous::ContactMade&) {}  // only a fact for the log
  void On(const rendezvous::ContactRestored&);
  void On(const rendezvous::RendezvousFailed& event);
  void On(const WorkerEnded& event);
  void On(const WorkersGone&);
  void On(const SignalReceived& event);
  void On(const LocalFailure& event);
  void On(const AgentTimePassed&);

  // Transitions, named for where they go.
  void Join();
  void Run(const rendezvous::Assignment& assignment);
  void Succeed();
  void Stop(int signal);
  void Finish(int exit_code);
  // Sets how the agent will end once its workers are gone.
  void PlanEnd(int exit_code, ExitOwner owner, std::string reason);

  bool CouldBeAStop(int signal) const;
  void Fail(const WorkerEnd& end, TimePoint at);
  void JudgeSuspicions();
  void GiveNotice();
  // When to tell of the same wait again.
  std::optional<TimePoint> NextNotice() const;
  void CheckContact();
  void FinishWithVerdict();
  void FinishStopped();
  bool HasWorkers() const { return !are_workers_gone_; }
  bool HasBudget() const { return assignment_.restart_count < assignment_.max_restarts; }
  std::optional<TimePoint> ContactDeadline() const;

  const AgentPolicy policy_;
  State state_ = State::kIdle;
  TimePoint now_{};
  std::vector<AgentAction> actions_;

  rendezvous::Assignment assignment_;  // of the newest round adopted
  int succeeded_count_ = 0;            // workers of this round that exited 0
  bool are_workers_gone_ = true;
  std::vector<Suspicion> suspicions_;
  Contact contact_;

  // How the agent will end once its workers are gone; none: it joins again.
  std::optional<int> exit_code_;
  ExitOwner exit_owner_ = ExitOwner::kNobody;
  std::string exit_reason_;
  std::optional<rendezvous::Verdict> verdict_;
  std::optional<WorkerEnd> unanswered_failure_;  // reported, and no verdict or new round yet
  bool is_coordinator_gone_ = false;             // its process ended while a round of it ran here
  int kill_signals_ = 0;

  // What the user has been told.
  std::optional<Notice> notice_;  // of the wait for a place
  bool is_waiting_told_ = false;
  bool is_drain_told_ = false;
  int restarts_told_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_CORE_H_
