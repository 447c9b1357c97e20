#include "tests/launcher/metrics/views.h"

#include <cstdint>
#include <string>

namespace ddprun::launcher {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

RankView Rank(int rank) {
  return {.rank = rank,
          .local_rank = rank % 2,
          .pid = 100 + rank,
          .state = "running",
          .end = "",
          .wait = "futex_wait_queue",
          .up_s = 61.5,
          .cpu = 1.25,
          .idle_s = 0,
          .memory = 3 * kGiB + rank,
          .gpu = 0.93,
          .gpu_memory = 20 * kGiB,
          .phase = ProgramPhase::kTrain,
          .phase_s = 30,
          .step = 1200,
          .step_age_s = 0.1,
          .step_s = 0.25,
          .longest_step_s = 1.5,
          .samples_per_s = 512,
          .self_s = 0.2 + rank / 100.0,
          .exposed_share = 0.08,
          .first_step_s = 4.5,
          .groups = {{.key = 1, .name = "default", .called = 31, .done = 30, .waiting_s = 0.5},
                     {.key = 2, .name = "pair", .called = 7, .done = 7}},
          .last_line = "step 1200",
          .last_line_age_s = 0.2};
}

NodeView Node(int index) {
  return {.id = "n" + std::to_string(index),
          .host = "host" + std::to_string(index),
          .node_rank = index,
          .state = "running",
          .hosts_coordinator = index == 0,
          .age_s = 0.4,
          .up_s = 70,
          .waiting_for = "",
          .waiting_left_s = {},
          .ranks = {Rank(2 * index), Rank(2 * index + 1)},
          .gpus = {{.index = 0,
                    .name = "NVIDIA H100",
                    .utilisation = 0.93,
                    .memory_used = 20 * kGiB,
                    .memory_total = 80 * kGiB,
                    .temperature = 61,
                    .throttle = "power",
                    .xids = {79}}},
          .memory_used = 8 * kGiB,
          .memory_limit = 64 * kGiB,
          .oom_kills = 2,
          .problems = {}};
}

}  // namespace

JobView RichView() {
  JobView job{.run_id = "run7",
              .program = "./train",
              .state = "running",
              .round = 2,
              .min_nodes = 1,
              .max_nodes = 3,
              .world_size = 4,
              .node_count = 2,
              .restart_count = 1,
              .max_restarts = 3,
              .up_s = 70,
              .waiting_for = "",
              .waiting_left_s = {},
              .nodes = {Node(0), Node(1)},
              .silent_nodes = {"host2"},
              .rounds = {{.round = 2,
                          .reason = "rank 3 failed",
                          .detect_s = 0.01,
                          .stop_s = 0.5,
                          .rendezvous_s = 0.125,
                          .exec_s = 0.25,
                          .first_step_s = 4.5,
                          .age_s = 61}},
              .first_fault = FaultView{.rank = 3, .host = "host1", .text = "exit code 1"}};
  for (NodeView& node : job.nodes) node.health = "healthy";
  job.is_healthy = false;
  job.problems = {{.kind = "straggler", .text = "rank 3 is slow", .ranks = {3}, .node = "host1"},
                  {.kind = "lost_node", .text = "host2 is silent", .ranks = {}, .node = "host2"},
                  {.kind = "of the future", .text = "?", .ranks = {}, .node = ""}};
  job.step = 1200;
  job.samples_per_s = 2048;
  job.step_s = 0.25;
  job.exposed_share = 0.08;
  job.effective_share = 0.75;
  job.checkpoint_s = 3;
  job.evaluation_s = 2;
  job.restart_s = 6.5;
  job.start_s = 6;
  job.stall_s = 4;
  return job;
}

JobView RichViewAfter(double seconds) {
  JobView job = RichView();
  const auto steps = static_cast<int64_t>(4 * seconds);
  *job.step += steps;
  job.up_s += seconds;
  job.checkpoint_s += seconds / 10;
  for (NodeView& node : job.nodes) {
    node.up_s += seconds;
    for (RankView& rank : node.ranks) {
      *rank.up_s += seconds;
      *rank.step += steps;
      rank.groups[0].called += static_cast<uint64_t>(steps);
      rank.groups[0].done += static_cast<uint64_t>(steps);
    }
  }
  return job;
}

}  // namespace ddprun::launcher
