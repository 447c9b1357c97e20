// The values that agents and the coordinator exchange. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_TYPES_H_
#define DDPRUN_RENDEZVOUS_CORE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// How many nodes form a round, and how long each wait lasts. Each node says its own when it joins;
// a coordinator that was given none takes the first one's.
struct Policy {
  std::string run_id;
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
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
  int restart_count = 0;  // equal on all nodes
  int max_restarts = 0;
  // The coordinator lives in a member's agent: where that process is gone, its ranks are too.
  bool coordinator_is_member = true;
  std::string coordinator_node;  // that member, for people
  // One sentence for the user: why this round is smaller than the one before. Empty: nothing to
  // say.
  std::string note;
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

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
  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

inline bool IsSameWorker(const FailureReport& a, const FailureReport& b) {
  return a.node == b.node && a.rank == b.rank && a.pid == b.pid;
}

// What ddprun exits with when the rendezvous has failed (launcher/process/exit_status.h).
inline constexpr int kRendezvousExitCode = 121;

// The end of the job, the same for every agent.
struct Verdict {
  int exit_code = 0;   // 0: every rank exited 0
  std::string reason;  // one sentence
  std::optional<FailureReport> first_failure = {};
  // "rank 1 had exited with 0 12.3 s before"; empty: none had.
  std::string early_exit = {};
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// What a coordinator starts from: drawn anew, or read from the job's file.
struct Beginning {
  std::string run_id = {};  // the only one that is served; empty: the policy's, or the first node's
  Epoch epoch;              // greater than that of every earlier coordinator of this job
  JobInstance instance;
  bool is_remembered = false;  // the instance comes from the job's file
  int restart_count = 0;
  std::optional<Verdict> verdict;  // the job is over: only its end has to be told
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TYPES_H_
