#include "tests/launcher/status/snapshots.h"

namespace ddprun::testing {

using launcher::FaultView;
using launcher::JobView;
using launcher::NodeView;
using launcher::ProgramPhase;
using launcher::RankView;

RankView TrainingRank(int rank, int local_rank, int64_t step) {
  RankView view;
  view.rank = rank;
  view.local_rank = local_rank;
  view.pid = 1000 + rank;
  view.state = "running";
  view.up_s = 3600;
  view.cpu = 1.04;
  view.idle_s = 0;
  view.memory = 1288490189;  // 1.2 GiB
  view.gpu = 0.93;
  view.phase = ProgramPhase::kTrain;
  view.step = step;
  view.step_age_s = 0.4;
  view.step_s = 0.5;
  view.self_s = 0.35;
  view.samples_per_s = 64;
  view.groups = {{.key = 0xfedcba9876543210,
                  .name = "world",
                  .rank = rank,
                  .size = 4,
                  .called = 88123,
                  .done = 88123,
                  .op = "all-reduce",
                  .waiting_s = 0,
                  .quiet_s = 0.1}};
  view.last_line = "epoch 3: loss 0.21";
  view.last_line_age_s = 1.5;
  return view;
}

NodeView TrainingNode(const std::string& host, int node_rank, int first_rank, int count) {
  NodeView node;
  node.id = host + "-1";
  node.host = host;
  node.node_rank = node_rank;
  node.state = "running";
  node.hosts_coordinator = node_rank == 0;
  node.age_s = 0.2;
  node.up_s = 3700;
  for (int i = 0; i < count; ++i) node.ranks.push_back(TrainingRank(first_rank + i, i, 18240));
  return node;
}

JobView TrainingJob(int nodes, int ranks_of_each) {
  JobView job;
  job.run_id = "job-7";
  job.state = "running";
  job.round = 1;
  job.min_nodes = job.max_nodes = job.node_count = nodes;
  job.world_size = nodes * ranks_of_each;
  for (int i = 0; i < nodes; ++i) {
    job.nodes.push_back(
        TrainingNode("host-" + std::to_string(i), i, i * ranks_of_each, ranks_of_each));
  }
  job.rounds = {{.round = 1,
                 .reason = "",
                 .detect_s = {},
                 .stop_s = {},
                 .rendezvous_s = 0.08,
                 .exec_s = 0.04,
                 .first_step_s = 3.2,
                 .age_s = 3600}};
  job.sentence = "running: round 1, " + std::to_string(nodes) + " of " + std::to_string(nodes) +
                 " nodes, step 18,240, 256 samples/s";
  job.step = 18240;
  job.samples_per_s = 256;
  return job;
}

JobView HungJob() {
  JobView job = TrainingJob(1, 4);
  for (RankView& rank : job.nodes[0].ranks) {
    rank.gpu = 1;
    rank.step_age_s = 42.5;
    rank.groups[0].called = 88124;
    rank.groups[0].waiting_s = 42.2;
  }
  RankView& late = job.nodes[0].ranks[2];
  late.gpu = 0;
  late.cpu = 0;
  late.groups[0].called = 88123;
  late.groups[0].waiting_s = 0;
  late.last_line = "loading shard 17";
  job.is_healthy = false;
  job.sentence = "hung: round 1, step 18,240 for 42 s";
  job.problems = {{.kind = "hang",
                   .text = "ranks 0-1, 3 wait in all-reduce #88124 for 42 s; rank 2 has not come",
                   .ranks = {2},
                   .node = "host-0",
                   .since_s = 42}};
  return job;
}

namespace {

void FillRank(RankView& rank) {
  rank.end = "exit code 1";
  rank.wait = "futex_wait_queue";
  rank.idle_s = 2.5;
  rank.gpu_memory = 70'000'000'000;
  rank.phase_s = 12;
  rank.evaluation_s = 3.5;
  rank.checkpoint_s = 1.5;
  rank.longest_step_s = 1.25;
  rank.exposed_share = 0.125;
  rank.first_step_s = 4.5;
  rank.backward_s = 0.06;
  rank.buckets = {{.count = 1, .start_s = 0.01, .end_s = 0.02},
                  {.count = 3, .start_s = 0.055, .end_s = 0.070001}};
  rank.groups.push_back({.key = 7,
                         .name = "tp",
                         .rank = 1,
                         .size = 2,
                         .called = 9,
                         .done = 8,
                         .op = "broadcast",
                         .waiting_s = 0.5,
                         .quiet_s = 0.75});
}

void FillNode(NodeView& node) {
  node.waiting_for = "the others";
  node.waiting_left_s = 28.5;
  node.gone_node = "node host-9 is lost";
  node.memory_used = 5'000'000'000;
  node.memory_limit = 16'000'000'000;
  node.oom_kills = 2;
  node.gpus = {{.index = 1,
                .name = "NVIDIA H100",
                .utilisation = 0.5,
                .memory_used = 1'000'000,
                .memory_total = 80'000'000'000,
                .temperature = 61,
                .throttle = "power",
                .xids = {79, 48}}};
  node.problems = {
      {.kind = "oom", .text = "2 kills", .ranks = {0, 1}, .node = node.host, .since_s = 3}};
  for (RankView& rank : node.ranks) FillRank(rank);
}

}  // namespace

JobView FullJob() {
  JobView job = TrainingJob(2, 2);
  for (NodeView& node : job.nodes) FillNode(node);
  job.program = "train.py";
  job.restart_count = 1;
  job.max_restarts = 3;
  job.up_s = 4000;
  job.waiting_for = "1 of 2 nodes, waiting for 1 more";
  job.waiting_left_s = 100;
  job.silent_nodes = {"host-9"};
  job.rounds[0].reason = "rank 3 failed";
  job.rounds[0].detect_s = 0.35;
  job.rounds[0].stop_s = 1.2;
  job.first_fault = FaultView{.rank = 3,
                              .host = "host-1",
                              .text = "killed by signal 9 (SIGKILL)",
                              .last_lines = "loading\nTraceback: boom",
                              .round = 1,
                              .age_s = 185};
  job.is_healthy = false;
  job.problems = job.nodes[0].problems;
  job.waiting_line = "waits for 1 more node";
  job.gone_nodes = "node host-7 is lost";
  job.bad_nodes = 2;
  job.bad_hosts = "node host-8 is bad: GPU 3 is lost (quarantine for 60 s more)";
  job.nodes[1].health = "unknown";
  job.nodes[1].health_line = "it did not end in time";
  job.coordinator_silent_s = 9;
  job.step_s = 0.5;
  job.exposed_share = 0.25;
  job.effective_share = 0.75;
  job.checkpoint_s = 1;
  job.evaluation_s = 2;
  job.restart_s = 3;
  job.start_s = 4;
  job.stall_s = 5;
  return job;
}

}  // namespace ddprun::testing
