// What is known of a job at one moment: the one type behind status, top, the page, the metrics and
// the JSON. [pure]
//
// Moments are ages in seconds, by the clock of the node that took the snapshot: clocks of two
// machines are never compared. What is not known is empty, and shown as unknown.
#ifndef DDPRUN_LAUNCHER_STATUS_SNAPSHOT_H_
#define DDPRUN_LAUNCHER_STATUS_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {

// What a program says it does (worker_runtime/counters_page.h).
enum class ProgramPhase : uint8_t {
  kUnknown,  // it has said nothing
  kStart,
  kTrain,
  kEvaluation,
  kCheckpoint,
};

// One process group, as one of its ranks sees it.
struct GroupView {
  uint64_t key = 0;  // the same on all ranks of the group, no other group's
  std::string name;
  int rank = 0;  // within the group
  int size = 1;
  uint64_t called = 0;   // operations that this rank has come to: the number of the last
  uint64_t done = 0;     // of the last that has ended; those after it are under way
  std::string op;        // the last called: "all-reduce"
  double waiting_s = 0;  // how long the oldest under way has been so; 0: none is
  double quiet_s = 0;    // since the last change of `called` or `done`
  // PyTorch is asked for it, which is done now and then: how long ago that was, and what stands
  // above is of then. Empty: the rank tells it all the time.
  std::optional<double> asked_s = {};
  friend bool operator==(const GroupView&, const GroupView&) = default;
};

// When in a backward pass buckets of gradients were reduced, since the pass's first gradient.
struct BucketView {
  int count = 1;  // of many, so many in turn share one
  double start_s = 0, end_s = 0;
  friend bool operator==(const BucketView&, const BucketView&) = default;
};

struct RankView {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;        // 0: not started
  std::string state;  // "starting", "running", "ended"
  std::string end;    // how it ended: "exit code 1"; empty: it has not
  std::string wait;  // where the kernel says it waits ("futex_wait_queue"); empty: nowhere, unknown
  std::optional<double> up_s;  // since its start
  std::optional<double> cpu;   // cores in use, by all its threads, lately
  // Share of time, lately, 0 to 1, in which its main thread could run and no core was free.
  std::optional<double> core_wait_share;
  std::optional<double> idle_s;       // since it last used CPU time or ended a step; 0: it does
  std::optional<int64_t> memory;      // bytes resident
  std::optional<double> gpu;          // share of time, 0 to 1, in which its GPU ran a kernel
  std::optional<int64_t> gpu_memory;  // bytes of its GPU in use
  // What the program says; empty where it says nothing.
  ProgramPhase phase = ProgramPhase::kUnknown;
  double phase_s = 0;                         // in this phase
  double evaluation_s = 0, checkpoint_s = 0;  // in all such phases since its start, to now
  std::optional<int64_t> step;
  double step_age_s = 0;                 // since `step` was reported; of no meaning without
  std::optional<double> step_s;          // mean of the last steps
  std::optional<double> longest_step_s;  // of this round
  std::optional<double> samples_per_s;   // of this rank, over the last steps
  std::optional<double> self_s;          // of step_s what it takes before it waits for others
  std::optional<double> exposed_share;   // of step_s what waits for communication, 0 to 1
  std::optional<double> first_step_s;    // from its start to the end of its first step
  std::optional<double> backward_s;      // from a pass's first gradient to its last
  std::vector<BucketView> buckets;       // of that pass, in their order
  std::vector<GroupView> groups;
  std::string last_line;  // of its stderr or stdout, clean text; empty: none, or not shown
  std::optional<double> last_line_age_s;
  friend bool operator==(const RankView&, const RankView&) = default;
};

struct GpuView {
  int index = 0;
  std::string name;
  std::optional<double> utilisation;  // 0 to 1
  std::optional<int64_t> memory_used, memory_total;
  std::optional<int> temperature;  // degrees Celsius
  std::string throttle;            // why it runs slower than it could; empty: it does not
  std::vector<int> xids;           // errors of the driver since the job began
  friend bool operator==(const GpuView&, const GpuView&) = default;
};

// Something that is wrong and worth a line.
struct Problem {
  // "hang", "no_progress", "straggler", "lost_node", "failure", "oom", "disk", "gpu", "throttling"
  std::string kind;
  std::string text;  // one sentence
  std::vector<int> ranks;
  std::string node;    // host; empty: of the job
  double since_s = 0;  // how long it has been so
  friend bool operator==(const Problem&, const Problem&) = default;
};

// Where the time of one round's beginning went; what has not happened or is not known is empty.
struct RoundView {
  uint64_t round = 0;
  std::string reason;                  // why the round before ended; empty: there is none
  std::optional<double> detect_s;      // from the failure to the coordinator's word
  std::optional<double> stop_s;        // from that to the last worker's end
  std::optional<double> rendezvous_s;  // from the join to the assignment
  std::optional<double> exec_s;        // from that to the last worker's exec
  std::optional<double> first_step_s;  // from that to the first step's end
  double age_s = 0;                    // since its assignment
  friend bool operator==(const RoundView&, const RoundView&) = default;
};

struct NodeView {
  std::string id;  // of its agent
  std::string host;
  // The judge's: the host, where several nodes have the same one with what tells them apart.
  std::string name;
  int node_rank = -1;  // -1: in no round
  std::string
      state;  // the agent's: "joining", "preparing", "running", "succeeded", "stopping", "leaving"
  bool hosts_coordinator = false;
  double age_s = 0;                      // of this view
  double up_s = 0;                       // since ddprun's start there
  std::string waiting_for;               // the agent's own words; empty: nothing
  std::optional<double> waiting_left_s;  // until that is given up
  // The node of its last round whose coordinator it has seen go, and how; empty: none.
  std::string gone_node;
  // By its last --health-check: "healthy", "bad" or "unknown", and the last line that it wrote.
  std::string health, health_line;  // empty: there was none
  std::vector<RankView> ranks;      // by local rank
  std::vector<GpuView> gpus;
  std::optional<int64_t> memory_used, memory_limit;  // of the job's cgroup, or the machine's
  int64_t oom_kills = 0;                             // since the job began
  std::vector<Problem> problems;                     // of this node
  friend bool operator==(const NodeView&, const NodeView&) = default;
};

// A worker's failure that ended a round.
struct FaultView {
  int rank = 0;
  std::string host;
  std::string text;        // "killed by signal 9 (SIGKILL)"
  std::string last_lines;  // of its stderr, clean text; empty: none, or not shown
  uint64_t round = 0;
  double age_s = 0;
  friend bool operator==(const FaultView&, const FaultView&) = default;
};

struct JobView {
  std::string run_id;
  std::string program;  // as the user called it; empty: not shown
  std::string state;    // "forming", "starting", "running", "stopping", "ended", "unknown"
  uint64_t round = 0;   // 0: none yet
  int min_nodes = 1, max_nodes = 1;
  int world_size = 0;  // of the round
  int node_count = 0;  // of the round
  int restart_count = 0, max_restarts = 0;
  double up_s = 0;          // the oldest agent's
  std::string waiting_for;  // the coordinator's words: "1 of 2 nodes, waiting for 1 more"
  std::optional<double> waiting_left_s;
  // Nodes of the last round that are lost or have left, and why, until the next round.
  std::string gone_nodes;
  int bad_nodes = 0;      // that were taken out so far
  std::string bad_hosts;  // those in quarantine, and why; empty: none
  // How long the coordinator has not answered, so that other nodes are not heard of; empty: it
  // does.
  std::optional<double> coordinator_silent_s;
  // The job's verdict is known: what still runs is stopped, and nodes leave. For the judge alone.
  bool is_ending = false;
  // Since the stop of this node's workers began, until the next round; empty: there was none.
  // For the judge alone.
  std::optional<double> round_over_s = {};
  std::vector<NodeView> nodes;  // by node rank, then those in no round
  // Nodes of the job that gave no answer, by host.
  std::vector<std::string> silent_nodes;
  std::vector<RoundView> rounds;         // the newest last, as this node saw them
  std::optional<FaultView> first_fault;  // of the newest round that failed
  // Filled in by the judge (job_judge.h).
  bool is_healthy = true;
  std::vector<Problem> problems;        // the worst first
  std::string sentence;                 // "running: round 2, 4 of 4 nodes, ..."
  std::string waiting_line;             // what the job waits for; empty: nothing
  std::optional<int64_t> step;          // of the slowest rank
  std::optional<double> samples_per_s;  // of all ranks
  std::optional<double> step_s;         // mean over ranks
  std::optional<double> exposed_share;
  // Share of the job's time spent in steps, and where the rest went, in seconds.
  std::optional<double> effective_share;
  double checkpoint_s = 0, evaluation_s = 0, restart_s = 0, start_s = 0;
  double stall_s = 0;  // hangs, and steps that did not advance
  friend bool operator==(const JobView&, const JobView&) = default;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_SNAPSHOT_H_
