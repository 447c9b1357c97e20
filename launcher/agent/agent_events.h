// What happens to one node's agent, and what it does about it. [pure]
#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_EVENTS_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_EVENTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <variant>

#include "launcher/agent/worker_end.h"
#include "rendezvous/base/time.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

struct AgentStarted {};
// The answer to PrepareWorkers. `error`: this machine's, one line; "": they can be started.
struct WorkersPrepared {
  rendezvous::Assignment assignment;  // as it was asked for: an answer may come in a later round
  std::string error{};
};
// The answer to DescribeFailure.
struct FailureDescribed {
  WorkerEnd end;
  rendezvous::Assignment assignment;
  rendezvous::FailureReport report;
};
// The answer to LookForEnding: the local ranks whose end is under way.
struct EndingFound {
  rendezvous::Assignment assignment;
  std::set<int> local_ranks;
};
// Nothing of the workers' process groups is left, and what they left behind has been read.
struct WorkersGone {
  bool have_read_stop = false;  // one of them has read that it is asked to stop
};
// The workers are to save and end after their step: --preempt_signal came, or the user said so.
struct StopAsked {
  std::string why;  // "SIGUSR1"
};
// `ddprun stop`: the user wants the whole job to end.
struct StopOrder {
  rendezvous::StopHow how{};
  std::string reason;  // "ddprun stop on node a"
};
// --on_hang=restart: the round is to end as if that worker had failed.
struct HangJudged {
  Round round;  // the judgement may come when that one is over
  rendezvous::FailureReport report;
};
struct SignalReceived {
  int signal = 0;
  bool is_kill = false;  // at once
  bool may_be_for_all = false;
  bool is_again = false;        // the same order once more: it shortens nothing
  bool is_of_terminal = false;  // a person's Ctrl-C
};
// Something of this machine failed: a store that cannot listen, a process that cannot be killed.
struct LocalFailure {
  int exit_code = 0;
  std::string message;
};
// The answer to CheckHealth.
struct HealthFound {
  uint64_t number = 0;  // of the check
  rendezvous::HealthReport report;
};
struct AgentTimePassed {};
// The answers to EndJob. `are_all_gone` false: some do not die, the kernel keeps them.
struct LeftoversGone {
  bool are_all_gone = true;
};
struct ReportWritten {};
// The answer to DrainLogs. Not drained: somebody holds a channel or does not read the console.
struct LogsDrained {
  bool is_all_written = true;
};

using AgentEvent =
    std::variant<AgentStarted, rendezvous::Waiting, rendezvous::Assigned, rendezvous::Drained,
                 rendezvous::Concluded, rendezvous::ContactMade, rendezvous::ContactLost,
                 rendezvous::ContactRestored, rendezvous::RendezvousFailed,
                 rendezvous::ContactEnded, WorkersPrepared, WorkerEnd, FailureDescribed,
                 EndingFound, WorkersGone, rendezvous::StopRequested, StopAsked, StopOrder,
                 HangJudged, HealthFound, SignalReceived, LocalFailure, AgentTimePassed,
                 LeftoversGone, ReportWritten, LogsDrained>;

// Close the old round's store, listen with a fresh one, and ask for a place in the next round.
struct JoinRound {
  rendezvous::HealthReport health;
};
// Run the health check of this node; HealthFound follows, unless it is stopped.
struct CheckHealth {
  uint64_t number = 0;
};
struct StopHealthCheck {};
// Of a node that waits for a place: what a later check has found.
struct ReportHealth {
  rendezvous::HealthReport report;
};
// Make the workers' files. WorkersPrepared follows when the file system has answered.
struct PrepareWorkers {
  rendezvous::Assignment assignment;
};
// Those that were prepared last.
struct StartWorkers {
  rendezvous::Assignment assignment;
};
// `signal` to every worker, then SIGTERM to its helpers (worker_stop.h), SIGKILL to all after
// `grace`; WorkersGone follows.
struct StopWorkers {
  int signal = 0;
  Duration grace{0};
  bool may_be_for_all = false;  // the workers may have it from elsewhere: once is enough
};
struct KillWorkers {};
// Set the flag that the workers poll. It stays set for those of later rounds, unless it is only to
// scale up. Once for each of both.
struct AskToStop {
  std::string why;              // "SIGUSR1"
  bool is_to_scale_up = false;  // nodes have come, and the next round has them
};
// Tell the coordinator, who tells all nodes.
struct OrderStop {
  rendezvous::StopHow how{};
  std::string reason;
};
// To whoever gave a StopOrder.
struct AnswerStop {
  bool is_after_step = false;  // to those alone who wait for a step; else to all
  // Why other nodes may not hear of it, as a clause; empty: the coordinator has heard it.
  std::string trouble{};
  // Why the job ends, where that is not by this order; empty: it is, or it goes on to its step.
  std::string ending{};
};
// Find out all there is to say of this end. FailureDescribed follows within seconds.
struct DescribeFailure {
  rendezvous::Assignment assignment;
  WorkerEnd end;
};
// Find out which living workers are about to end. EndingFound follows within seconds.
struct LookForEnding {
  rendezvous::Assignment assignment;
};
struct ReportFailure {
  Round round;
  rendezvous::FailureReport report;
  TimePoint at;
};
struct ReportFirstSuccess {
  Round round;
  int rank = 0;  // the worker that exited 0
  TimePoint at;
};
struct ReportSuccess {
  Round round;
  // What the workers have done if one of them has read the flag.
  rendezvous::StopRead if_read = rendezvous::StopRead::kNo;
};
struct LeaveJob {
  std::string reason;
  bool is_by_signal = false;
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
  kSignal,   // ddprun was stopped by it
  kStopped,  // the user's `ddprun stop`
  kDdprun,
  kRequeue,  // --requeue_code: the workers stopped when they were asked to, or none ran
};
// How the job ends on this node. Kill what is left of it, end contact with the rendezvous, write
// the report; LeftoversGone, ContactEnded and ReportWritten follow, in any order.
struct EndJob {
  int exit_code = 0;
  ExitOwner owner = ExitOwner::kNobody;
  std::string reason = {};  // one sentence
};
// Write out what the workers and we have said; LogsDrained follows within `timeout`.
struct DrainLogs {
  Duration timeout{0};
  bool is_cut_off = false;  // processes that do not die may hold the channels: close them first
};
// The last action ever. Not `is_clean`: something did not answer, so nothing is waited for.
struct ExitAgent {
  int exit_code = 0;
  bool is_clean = true;
};

using AgentAction =
    std::variant<JoinRound, CheckHealth, StopHealthCheck, ReportHealth, PrepareWorkers,
                 StartWorkers, StopWorkers, KillWorkers, AskToStop, OrderStop, AnswerStop,
                 DescribeFailure, LookForEnding, ReportFailure, ReportFirstSuccess, ReportSuccess,
                 LeaveJob, AckVerdict, Say, PrintReport, EndJob, DrainLogs, ExitAgent>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_EVENTS_H_
