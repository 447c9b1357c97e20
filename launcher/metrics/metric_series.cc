#include "launcher/metrics/metric_series.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>

namespace ddprun::launcher {
namespace {

constexpr MetricType kGauge = MetricType::kGauge;
constexpr MetricType kCounter = MetricType::kCounter;

using Values = std::vector<std::pair<const char*, std::string>>;

// The shortest text that reads back as the same number.
template <typename Number>
std::string Text(Number number) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), number).ptr;
  return {text, end};
}
std::string Text(bool is_so) { return is_so ? "1" : "0"; }
// What is no number is not known.
std::string Text(double number) {
  return std::isfinite(number) ? Text<double>(number) : std::string();
}
template <typename Number>
std::string Text(std::optional<Number> number) {
  return number ? Text(*number) : std::string();
}

std::string When(bool is_known, const std::string& text) { return is_known ? text : std::string(); }

// Whether anybody has said how the job is.
bool IsKnown(const JobView& job) {
  return job.round > 0 || (!job.state.empty() && job.state != "unknown");
}

bool IsKnown(const GpuView& gpu) { return gpu.utilisation || gpu.memory_used || gpu.temperature; }

Values States(const JobView& job) {
  Values values;
  bool is_any = false;
  for (const char* state : {"forming", "starting", "running", "stopping", "ended"}) {
    is_any = is_any || job.state == state;
    values.emplace_back(state, Text(job.state == state));
  }
  values.emplace_back("unknown", Text(!is_any));
  return values;
}

// Kinds of problems that are not in the list count as "other": a label's values stay few.
Values Problems(const JobView& job) {
  constexpr std::array<const char*, 10> kKinds = {
      "hang", "no_progress", "straggler", "lost_node",  "failure",
      "oom",  "disk",        "gpu",       "throttling", "other"};
  std::array<int, kKinds.size()> counts{};
  for (const Problem& problem : job.problems) {
    const auto at = std::find(kKinds.begin(), kKinds.end() - 1, problem.kind);
    ++counts[static_cast<size_t>(at - kKinds.begin())];
  }
  Values values;
  for (size_t i = 0; i < kKinds.size(); ++i) values.emplace_back(kKinds[i], Text(counts[i]));
  return values;
}

Values OutsideSteps(const JobView& job) {
  if (!job.effective_share) return {};
  return {{"checkpoint", Text(job.checkpoint_s)},
          {"evaluation", Text(job.evaluation_s)},
          {"restart", Text(job.restart_s)},
          {"stall", Text(job.stall_s)},
          {"start", Text(job.start_s)}};
}

Values RoundStart(const JobView& job) {
  if (job.rounds.empty()) return {};
  const RoundView& round = job.rounds.back();
  return {{"detect", Text(round.detect_s)},
          {"stop", Text(round.stop_s)},
          {"rendezvous", Text(round.rendezvous_s)},
          {"exec", Text(round.exec_s)},
          {"first_step", Text(round.first_step_s)}};
}

std::string LongestWait(const RankView& rank) {
  if (rank.groups.empty()) return "";
  double longest = 0;
  for (const GroupView& group : rank.groups) longest = std::max(longest, group.waiting_s);
  return Text(longest);
}

std::string OperationsDone(const RankView& rank) {
  if (rank.groups.empty()) return "";
  uint64_t done = 0;
  for (const GroupView& group : rank.groups) done += group.done;
  return Text(done);
}

// What is said of each thing of a sort.
constexpr KindSeries kJobKinds[] = {
    {{"ddprun_job_state", kGauge, "1 for the state of the job, 0 for the others."}, States},
    {{"ddprun_job_problems", kGauge, "Problems of the job now, by kind."}, Problems},
    {{"ddprun_job_outside_steps_seconds_total", kCounter,
      "Time of the job that was spent outside of training steps, by what it went to."},
     OutsideSteps},
    {{"ddprun_job_round_start_seconds", kGauge,
      "Time that the newest round took to begin, by what it went to."},
     RoundStart},
};

constexpr Series<JobView> kJob[] = {
    {{"ddprun_job_healthy", kGauge,
      "Whether the job has no problem but straggler, throttling, disk or oom: 1, or 0."},
     [](const JobView& job) { return When(IsKnown(job), Text(job.is_healthy)); }},
    {{"ddprun_job_up_seconds", kGauge, "Since the start of the oldest agent that answers."},
     [](const JobView& job) { return When(!job.nodes.empty(), Text(job.up_s)); }},
    {{"ddprun_job_round", kGauge, "Number of the round; 0 before the first."},
     [](const JobView& job) { return When(IsKnown(job), Text(job.round)); }},
    {{"ddprun_job_round_age_seconds", kGauge, "Since the newest round was formed."},
     [](const JobView& job) {
       return job.rounds.empty() ? std::string() : Text(job.rounds.back().age_s);
     }},
    {{"ddprun_job_nodes", kGauge, "Nodes of the round."},
     [](const JobView& job) { return When(IsKnown(job), Text(job.node_count)); }},
    {{"ddprun_job_min_nodes", kGauge, "Nodes without which no round is formed."},
     [](const JobView& job) { return Text(job.min_nodes); }},
    {{"ddprun_job_max_nodes", kGauge, "Nodes that the job takes at most."},
     [](const JobView& job) { return Text(job.max_nodes); }},
    {{"ddprun_job_present_nodes", kGauge, "Nodes that answer, in the round or not."},
     [](const JobView& job) { return Text(job.nodes.size()); }},
    {{"ddprun_job_silent_nodes", kGauge, "Nodes of the job that give no answer."},
     [](const JobView& job) { return Text(job.silent_nodes.size()); }},
    {{"ddprun_job_ranks", kGauge, "Ranks of the round."},
     [](const JobView& job) { return When(IsKnown(job), Text(job.world_size)); }},
    {{"ddprun_job_restarts_total", kCounter, "Restarts after failures."},
     [](const JobView& job) { return When(IsKnown(job), Text(job.restart_count)); }},
    {{"ddprun_job_bad_nodes_total", kCounter, "Nodes that were taken out of the job as bad."},
     [](const JobView& job) { return When(IsKnown(job), Text(job.bad_nodes)); }},
    {{"ddprun_job_max_restarts", kGauge, "Restarts after failures that the job may take."},
     [](const JobView& job) { return When(IsKnown(job), Text(job.max_restarts)); }},
    {{"ddprun_job_step", kGauge, "Training step of the slowest rank."},
     [](const JobView& job) { return Text(job.step); }},
    {{"ddprun_job_samples_per_second", kGauge, "Samples of all ranks, over the last steps."},
     [](const JobView& job) { return Text(job.samples_per_s); }},
    {{"ddprun_job_step_seconds", kGauge, "Time of one step, mean of the ranks' last steps."},
     [](const JobView& job) { return Text(job.step_s); }},
    {{"ddprun_job_exposed_communication_ratio", kGauge,
      "Share of a step that waits for communication, 0 to 1."},
     [](const JobView& job) { return Text(job.exposed_share); }},
    {{"ddprun_job_effective_time_ratio", kGauge,
      "Share of the job's time that was spent in training steps, 0 to 1."},
     [](const JobView& job) { return Text(job.effective_share); }},
};

constexpr Series<NodeView> kNode[] = {
    {{"ddprun_node_view_age_seconds", kGauge, "Age of the values that the node has sent."},
     [](const NodeView& node) { return Text(node.age_s); }},
    {{"ddprun_node_up_seconds", kGauge, "Since the start of ddprun on the node."},
     [](const NodeView& node) { return Text(node.up_s); }},
    {{"ddprun_node_rank", kGauge, "Place of the node in the round; absent if it is in no round."},
     [](const NodeView& node) { return When(node.node_rank >= 0, Text(node.node_rank)); }},
    {{"ddprun_node_healthy", kGauge,
      "Whether the node's last health check found it healthy: 1, or 0; absent without a result."},
     [](const NodeView& node) {
       return When(!node.health.empty() && node.health != "unknown",
                   Text(node.health == "healthy"));
     }},
    {{"ddprun_node_memory_used_bytes", kGauge,
      "Memory in use by the job's cgroup, or by the machine."},
     [](const NodeView& node) { return Text(node.memory_used); }},
    {{"ddprun_node_memory_limit_bytes", kGauge,
      "Memory that the job's cgroup may use, or that the machine has."},
     [](const NodeView& node) { return Text(node.memory_limit); }},
    {{"ddprun_node_oom_kills_total", kCounter,
      "Processes that the kernel killed for lack of memory since the job began."},
     [](const NodeView& node) { return Text(node.oom_kills); }},
};

constexpr Series<RankView> kRank[] = {
    {{"ddprun_rank_running", kGauge, "Whether the worker runs: 1, or 0."},
     [](const RankView& rank) { return When(!rank.state.empty(), Text(rank.state == "running")); }},
    {{"ddprun_rank_up_seconds", kGauge, "Since the worker's start."},
     [](const RankView& rank) { return Text(rank.up_s); }},
    {{"ddprun_rank_step", kGauge, "Training step that the program has reported last."},
     [](const RankView& rank) { return Text(rank.step); }},
    {{"ddprun_rank_step_age_seconds", kGauge, "Since the program reported that step."},
     [](const RankView& rank) { return When(rank.step.has_value(), Text(rank.step_age_s)); }},
    {{"ddprun_rank_step_seconds", kGauge, "Time of one step, mean of the last steps."},
     [](const RankView& rank) { return Text(rank.step_s); }},
    {{"ddprun_rank_longest_step_seconds", kGauge, "Time of the round's longest step."},
     [](const RankView& rank) { return Text(rank.longest_step_s); }},
    {{"ddprun_rank_first_step_seconds", kGauge,
      "From the worker's start to the end of its first step."},
     [](const RankView& rank) { return Text(rank.first_step_s); }},
    {{"ddprun_rank_self_seconds", kGauge,
      "Time of a step that the rank takes before it waits for others."},
     [](const RankView& rank) { return Text(rank.self_s); }},
    {{"ddprun_rank_exposed_communication_ratio", kGauge,
      "Share of a step that waits for communication, 0 to 1."},
     [](const RankView& rank) { return Text(rank.exposed_share); }},
    {{"ddprun_rank_samples_per_second", kGauge, "Samples of the rank, over the last steps."},
     [](const RankView& rank) { return Text(rank.samples_per_s); }},
    {{"ddprun_rank_cpu_cores", kGauge, "CPU cores in use by all threads of the worker, lately."},
     [](const RankView& rank) { return Text(rank.cpu); }},
    {{"ddprun_rank_cpu_idle_seconds", kGauge,
      "Since the worker last used CPU time or ended a step."},
     [](const RankView& rank) { return Text(rank.idle_s); }},
    {{"ddprun_rank_resident_bytes", kGauge, "Resident memory of the worker."},
     [](const RankView& rank) { return Text(rank.memory); }},
    {{"ddprun_rank_gpu_utilisation_ratio", kGauge,
      "Share of time in which the worker's GPU ran a kernel, 0 to 1."},
     [](const RankView& rank) { return Text(rank.gpu); }},
    {{"ddprun_rank_gpu_memory_bytes", kGauge, "Memory in use of the worker's GPU."},
     [](const RankView& rank) { return Text(rank.gpu_memory); }},
    {{"ddprun_rank_waiting_seconds", kGauge,
      "How long the oldest collective operation has been under way; 0 if there is no such "
      "operation."},
     LongestWait},
    {{"ddprun_rank_collective_operations_total", kCounter,
      "Collective operations that have ended, of all process groups."},
     OperationsDone},
};

constexpr Series<GpuView> kGpu[] = {
    {{"ddprun_gpu_utilisation_ratio", kGauge,
      "Share of time in which the GPU ran a kernel, 0 to 1."},
     [](const GpuView& gpu) { return Text(gpu.utilisation); }},
    {{"ddprun_gpu_memory_used_bytes", kGauge, "Memory of the GPU in use."},
     [](const GpuView& gpu) { return Text(gpu.memory_used); }},
    {{"ddprun_gpu_memory_bytes", kGauge, "Memory that the GPU has."},
     [](const GpuView& gpu) { return Text(gpu.memory_total); }},
    {{"ddprun_gpu_temperature_celsius", kGauge, "Temperature of the GPU."},
     [](const GpuView& gpu) { return Text(gpu.temperature); }},
    {{"ddprun_gpu_throttled", kGauge, "Whether the GPU runs slower than it could: 1, or 0."},
     [](const GpuView& gpu) {
       return When(IsKnown(gpu) || !gpu.throttle.empty(), Text(!gpu.throttle.empty()));
     }},
    {{"ddprun_gpu_xid_errors_total", kCounter,
      "Errors of the GPU that the driver reported since the job began."},
     [](const GpuView& gpu) {
       return When(IsKnown(gpu) || !gpu.xids.empty(), Text(gpu.xids.size()));
     }},
};

}  // namespace

absl::Span<const KindSeries> JobKindSeries() { return kJobKinds; }
absl::Span<const Series<JobView>> JobSeries() { return kJob; }
absl::Span<const Series<NodeView>> NodeSeries() { return kNode; }
absl::Span<const Series<RankView>> RankSeries() { return kRank; }
absl::Span<const Series<GpuView>> GpuSeries() { return kGpu; }

}  // namespace ddprun::launcher
