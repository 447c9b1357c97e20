// The values that agents and the coordinator exchange; what the rendezvous machine is told, and
// what it asks for. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_TYPES_H_
#define DDPRUN_RENDEZVOUS_CORE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/release.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/arrivals.h"
#include "rendezvous/core/bad_nodes.h"
#include "rendezvous/core/restart_limits.h"

namespace ddprun::rendezvous {

// How many nodes form a round, and how long each wait lasts. Each node says its own when it joins;
// a coordinator that was given none takes the first one's.
struct Policy {
  std::string run_id;
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  RestartLimits limits;
  BadNodeRules bad_nodes;
  ScaleUp scale_up = ScaleUp::kNow;
  // From the minimum being reached until a first round with fewer than max_nodes is sealed.
  Duration last_call = std::chrono::seconds(30);
  // How long the job may stay below min_nodes before it is given up.
  Duration join_timeout = std::chrono::seconds(600);
  // From the last word heard of a node until it is taken out of the job.
  Duration evict_after = std::chrono::seconds(10);
  // How long a coordinator that hears none of its members waits for them.
  Duration orphan_timeout = std::chrono::seconds(600);
  // From the first failure report until the first cause is named.
  Duration first_cause_window = std::chrono::milliseconds(200);
  // How long the coordinator waits for acknowledgements of the verdict.
  Duration verdict_ack_timeout = std::chrono::seconds(10);
  // `static`: every node has a rank given by the user and the store's address is fixed.
  bool is_static = false;
  std::string static_master_addr;
  uint16_t static_master_port = 0;
  // Where the nodes meet, for people: told to those that wait where no user named it. Else empty.
  std::string meeting_place;
};

// Where a cluster's manager has placed an agent. All empty: nowhere, or it does not say.
struct ClusterPlace {
  std::string job;   // "Slurm job 12"
  std::string step;  // "Slurm step 12.0"; empty: the agents may be those of several steps
  int nodes = 0;     // of that step: one agent on each; 0: not known
  int node = -1;     // this one's number among them; -1: some of them may send no agent
  friend bool operator==(const ClusterPlace&, const ClusterPlace&) = default;
};

// What one agent says of itself when it joins.
struct NodeInfo {
  NodeId id;
  std::string host;             // for people: the machine's name
  std::string advertised_addr;  // --local_addr; empty: the coordinator uses what it saw
  int local_world_size = 1;     // workers on this node, >= 1
  std::string role = "default";
  int node_rank = -1;             // --node_rank; -1: not given
  uint16_t store_port = 0;        // where this agent's worker store of the next round listens
  bool is_endpoint_node = false;  // hosts the coordinator: gets rank 0
  ClusterPlace cluster;
  // Of the program and its arguments, where the user has named no job; 0: not told. Two that differ
  // are two jobs.
  uint64_t program = 0;
  HealthReport health;  // since its workers of an earlier round were told to stop
  Release release = ThisRelease();
};

// What an agent needs to start its workers. O(1) in the number of nodes.
struct Assignment {
  JobInstance instance;
  Epoch epoch;
  Round round;
  int node_rank = 0;   // GROUP_RANK
  int node_count = 1;  // GROUP_WORLD_SIZE
  int first_rank = 0;  // RANK of local rank 0; the node's ranks are contiguous
  int world_size = 1;
  int role_first_rank = 0;
  int role_world_size = 1;
  std::string master_addr;
  uint16_t master_port = 0;
  int restart_count = 0, max_restarts = 0;  // equal on all nodes
  // The coordinator lives in a member's agent: where that process is gone, its ranks are too.
  bool coordinator_is_member = true;
  std::string coordinator_node;  // the member beside it, for people
  // For the user: why this round is smaller than the one before. Empty: nothing to say.
  std::string note;
  std::string restart_reason;  // why the round before it ended; empty: none, or not known here
  std::string round_key;       // a secret, where nodes know each other; of no record
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

inline constexpr size_t kRoundKeyBytes = 32;  // of Assignment::round_key, where there is one
// The most that is kept and sent of the texts of a WorkerError.
inline constexpr size_t kMaxErrorMessageBytes = 4 * 1024;
inline constexpr size_t kMaxTracebackBytes = 32 * 1024;

// What a worker wrote of its own end into its error file: an exception, as PyTorch's @record does.
struct WorkerError {
  std::string message;      // "ValueError: boom", at most 4 KiB
  std::string traceback;    // several lines; may be empty; at most 32 KiB
  int64_t unix_time_s = 0;  // when, by the worker's clock; 0: it does not say
  friend bool operator==(const WorkerError&, const WorkerError&) = default;
};

// How one worker ended without success.
struct FailureReport {
  NodeId node;
  std::string host;
  int node_rank = 0;
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  int exit_code = 1;  // what ddprun exits with: the worker's own, 128+n for signal n, 126/127
  int signal = 0;     // 0: it exited by itself
  bool dumped_core = false;
  std::string message;      // one line: "killed by signal 9 (SIGKILL)", an exception, an exec error
  std::string stderr_tail;  // last lines of its stderr, at most 64 KiB
  int64_t unix_time_ms = 0;          // for the report only, never compared
  std::string error_file;            // on its node; "": it wrote none
  std::optional<WorkerError> error;  // what stands in it, where that could be read
  // The worker says that it ended because this rank had left: its end is no cause.
  std::optional<int> left_peer;
  // It wrote an exception that is no lost connection, or its end was under way when a peer aborted:
  // its end does not follow from that peer's.
  bool has_own_cause = false;
  // The worker has not ended: ddprun ends the round, as others wait for it (--on_hang=restart).
  bool is_hang = false;
  std::optional<int64_t> step;  // that the worker reported last; empty: none
  // Of the round: to that step's end, or to the worker's where it told none.
  std::chrono::milliseconds progress{0};
  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

// Whether the end may follow from that of another rank, which nobody has named: what communicates
// aborts where it loses a peer.
inline bool MayFollow(const FailureReport& report) {
  constexpr int kSigAbrt = 6;  // Linux's; <csignal> is no header for pure code
  return report.signal == kSigAbrt && !report.left_peer && !report.has_own_cause;
}

inline bool IsSameWorker(const FailureReport& a, const FailureReport& b) {
  return a.node == b.node && a.rank == b.rank && a.pid == b.pid;
}

// The body of the question that anybody may ask: each node's view of itself, without what workers
// wrote and were called with.
inline constexpr char kPublicQuestion[] = "status";

// Of what the rendezvous carries unread. An answer fits into one message with room for the rest.
inline constexpr size_t kMaxQuestionBytes = 4 * 1024;
inline constexpr size_t kMaxAnswerBytes = 192 * 1024;

// What ddprun exits with when the user has stopped the job by `ddprun stop`, as after SIGTERM, when
// the rendezvous has failed, and on a bad node (launcher/process/exit_status.h).
inline constexpr int kStoppedExitCode = 143;
inline constexpr int kRendezvousExitCode = 121;
inline constexpr int kBadNodeExitCode = 119;

// How `ddprun stop` ends a job. Each is stronger than the one before.
enum class StopHow {
  kAfterStep,   // the workers are asked to save and end after their step
  kGracefully,  // SIGTERM, and SIGKILL after their grace
  kNow,         // SIGKILL
};

// The end of the job, the same for every agent.
struct Verdict {
  int exit_code = 0;   // 0: every rank exited 0
  std::string reason;  // one sentence
  std::optional<FailureReport> first_failure = {};
  // "rank 1 had exited with 0 12.3 s before"; empty: none had.
  std::string early_exit = {};
  // Which of RestartLimits ends the job with its failure. Empty: none, no restarts are left.
  std::string limit = {};
  bool is_kill = false;  // StopHow::kNow: the workers get no grace
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// Whether the exit code is that of a worker which has ended, and not ddprun's own.
inline bool IsOfWorker(const Verdict& verdict) {
  return verdict.first_failure && !verdict.first_failure->is_hang &&
         verdict.first_failure->exit_code == verdict.exit_code;
}

// What a coordinator starts from: drawn anew, or read from the job's file.
struct Beginning {
  std::string run_id = {};  // the only one that is served; empty: the policy's, or the first node's
  Epoch epoch;              // greater than that of every earlier coordinator of this job
  JobInstance instance;
  bool is_remembered = false;  // the instance comes from the job's file
  int restart_count = 0;
  RestartsSpent spent = {};
  BadNodesRecord bad_nodes = {};
  std::optional<Verdict> verdict;                   // the job is over: only its end has to be told
  Duration record_limit = std::chrono::seconds(2);  // how long a verdict waits to be durable
};

// Facts that the rendezvous machine is told: the events.
//
// Every message of an agent carries the job's instance as far as the agent knows it, and the newest
// epoch and round of it that the agent has adopted.
struct Stamp {
  SessionId session;
  Epoch epoch;
  Round round;
  JobInstance instance;
};

// A node is here. With `held` it is re-attaching after a broken session: its workers of that
// assignment, whose epoch and round are the stamp's, live on. Without, none of an earlier one does.
struct NodeJoined {
  Stamp stamp;
  NodeInfo node;
  Policy policy;  // as this node was started
  std::optional<Assignment> held;
  std::string source_addr;    // address the session came from; empty: in this very process
  std::string accepted_addr;  // local address it was accepted on; empty likewise
  int restart_count = 0, max_restarts = 0;  // of its newest round of that instance; 0: none
};
// `is_stuck`: the agent does not work, though its connection lives.
struct HeartbeatReceived {
  Stamp stamp;
  bool is_stuck = false;
};
// The node goes, the job stays: leave is not close.
struct NodeLeft {
  Stamp stamp;
  std::string reason;
  bool is_by_signal = false;  // it was told to end: a preemption
};
// `age` is the time from the worker's end to now as far as the driver can tell:
// the sender's age_us plus half the stream's round trip plus what it waited on its way.
struct WorkersFailed {
  Stamp stamp;
  FailureReport report;
  Duration age{0};
};
// The first worker of the node exited 0: from here on joins open no round.
struct FirstWorkerSucceeded {
  Stamp stamp;
  int rank = 0;     // of that worker
  Duration age{0};  // as in WorkersFailed
};
// All workers of the node exited 0.
struct WorkersSucceeded {
  Stamp stamp;
  StopRead stop_read = StopRead::kNo;
};
struct VerdictAcked {
  Stamp stamp;
};
// A later check of a node that waits for a place.
struct HealthChecked {
  Stamp stamp;
  HealthReport report;
};
// Asks all nodes of the job, or one of them, for what only they know: its own words, which the
// rendezvous carries and does not read.
struct Question {
  uint64_t id = 0;   // of the asker's choice; the answers carry it
  NodeId to;         // empty: all
  std::string body;  // at most kMaxQuestionBytes
  // How long the nodes may take; QuestionDesk bounds it.
  Duration patience{0};
  friend bool operator==(const Question&, const Question&) = default;
};
struct QuestionAsked {
  Stamp stamp;
  Question question;
};
// To AskNode.
struct AnswerGiven {
  Stamp stamp;
  uint64_t id = 0;
  std::string body;  // at most kMaxAnswerBytes
};
// The user wants the job to end, on all nodes.
struct StopOrdered {
  Stamp stamp;
  StopHow how = StopHow::kGracefully;
  std::string reason;  // "ddprun stop on node a"
};
// The stream ended: the node is suspect, not gone.
struct SessionBroken {
  SessionId session;
  // The other end closed it, or the network did; false: we ended it ourselves.
  bool is_by_peer = false;
};
// The Record that carries the verdict is on disk, or no file is kept.
struct Recorded {};
struct TimePassed {};

using Event =
    std::variant<NodeJoined, HeartbeatReceived, NodeLeft, WorkersFailed, FirstWorkerSucceeded,
                 WorkersSucceeded, VerdictAcked, HealthChecked, QuestionAsked, AnswerGiven,
                 StopOrdered, SessionBroken, Recorded, TimePassed>;

// What it obliges its driver to do, in the order given: the actions.
//
// What a refused node can do about it.
enum class Refusal {
  kFinal,     // nothing: it ends with exit code 121 and the message
  kJobOver,   // this job is closing: wait for the next one until join_timeout
  kOtherJob,  // its workers are of a job that is not this one: that one's coordinator is gone
  kBadNode,   // nothing: its host is bad; it ends with exit code 119 and the message
  kRankHeld,  // its rank is of a node that may be gone: ask again until that is back or lost
};

// The node waits; one sentence for people, sent only when it changes:
// "1 of 2 nodes, waiting for 1 more". `deadline` is when the wait ends, if it does: the job is
// given up, or goes on without the nodes that have not joined again.
struct TellWaiting {
  SessionId session;
  std::string reason;
  std::optional<TimePoint> deadline;
  friend bool operator==(const TellWaiting&, const TellWaiting&) = default;
};
struct Assign {
  SessionId session;
  Assignment assignment;
  friend bool operator==(const Assign&, const Assign&) = default;
};
// Stop the workers of `round`, then join again (or hear the verdict).
struct Drain {
  SessionId session;
  Epoch epoch;
  Round round;
  std::string reason;
  bool is_cause_wanted = false;  // MayFollow holds of the failure
  friend bool operator==(const Drain&, const Drain&) = default;
};
struct Conclude {
  SessionId session;
  Epoch epoch;
  Round round;
  Verdict verdict;
  friend bool operator==(const Conclude&, const Conclude&) = default;
};
// Send the refusal, then close the session.
struct Refuse {
  SessionId session;
  Refusal kind;
  std::string message;
  friend bool operator==(const Refuse&, const Refuse&) = default;
};
// Ask the node; AnswerGiven with this id is wanted.
struct AskNode {
  SessionId session;
  uint64_t id = 0;
  std::string body;
  friend bool operator==(const AskNode&, const AskNode&) = default;
};
struct NodeAnswer {
  NodeId node;
  std::string host;
  std::string body;
  friend bool operator==(const NodeAnswer&, const NodeAnswer&) = default;
};
// A failure that has ended a round, in short: of what the worker wrote the exception's first line.
struct FailureFact {
  int rank = 0;
  std::string host;
  std::string text;  // CauseText()
  Round round;       // which it ended
  TimePoint at{};
  friend bool operator==(const FailureFact&, const FailureFact&) = default;
};
// What the coordinator knows of the job, for people.
struct JobFacts {
  std::string run_id;
  std::string phase;                   // "forming", "running", "stopping", "ended"
  Round round;                         // the last one; 0: none
  int node_count = 0, world_size = 0;  // of that round
  int nodes_here = 0;                  // in the job, spares among them
  int min_nodes = 1, max_nodes = 1;
  int restart_count = 0, max_restarts = 0;
  std::string waiting_for;  // empty: nothing
  std::optional<TimePoint> deadline;
  // Nodes of the last round that are not in the job any more, and why, until the next one begins:
  // "node b is lost: silent for 10 s".
  std::string gone;
  // That of the newest round that failed, as far as this coordinator has seen it.
  std::optional<FailureFact> failure;
  int bad_nodes = 0;      // that were taken out so far
  std::string bad_hosts;  // those in quarantine, and why
  friend bool operator==(const JobFacts&, const JobFacts&) = default;
};
// A part of the answers to a question; `is_last`: no more come.
struct GiveAnswers {
  SessionId session;
  uint64_t id = 0;  // the asker's
  std::vector<NodeAnswer> answers;
  // Hosts of those that gave none in time: in the last part, or in several where one cannot hold
  // them.
  std::vector<std::string> silent = {};
  JobFacts facts = {};  // in the last part
  bool is_last = true;
  friend bool operator==(const GiveAnswers&, const GiveAnswers&) = default;
};
// Ask the node's workers to save and end after their step: of whatever round, so that the job ends,
// or of this round alone, so that the next one has more nodes.
struct TellToStop {
  SessionId session;
  std::string reason;
  bool is_to_scale_up = false;
  Epoch epoch = {};  // of that round
  Round round = {};
  friend bool operator==(const TellToStop&, const TellToStop&) = default;
};
// Close the session without a word: a newer one of the same node replaced it.
struct CloseSession {
  SessionId session;
  friend bool operator==(const CloseSession&, const CloseSession&) = default;
};
// The verdict is known everywhere it can be; the coordinator may end. Given once.
struct Finish {
  friend bool operator==(const Finish&, const Finish&) = default;
};
// Make this durable, for the coordinator that is started after a crash; a newer one replaces it.
// With a verdict, say Recorded when it is done.
struct Record {
  JobInstance instance;
  Epoch epoch;
  int restart_count = 0;
  RestartsSpent spent = {};
  BadNodesRecord bad_nodes = {};
  std::optional<Verdict> verdict;
  friend bool operator==(const Record&, const Record&) = default;
};

// Tell the site, once for each quarantine, that the host is bad.
struct TellSite {
  std::string host;
  std::string reason;
  friend bool operator==(const TellSite&, const TellSite&) = default;
};

using Action = std::variant<TellWaiting, Assign, Drain, Conclude, Refuse, AskNode, GiveAnswers,
                            TellToStop, CloseSession, Finish, Record, TellSite>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TYPES_H_
