#include "tools/bench/status/node_view.h"

namespace ddprun::bench {
namespace {

using launcher::GroupView;
using launcher::NodeView;
using launcher::RankView;

constexpr int64_t kGiB = int64_t{1} << 30;

GroupView Group(uint64_t key, const std::string& name, int rank, int size, uint64_t operations) {
  GroupView group{.key = key, .name = name, .rank = rank, .size = size};
  group.called = group.done = operations;
  group.op = "all-reduce";
  group.quiet_s = 0.0123 + 0.000417 * (rank % 97);
  return group;
}

RankView Rank(const rendezvous::Assignment& place, int local_rank, int64_t step) {
  RankView rank{.rank = place.first_rank + local_rank, .local_rank = local_rank};
  const double drift = 0.000131 * (rank.rank % 211);  // no two ranks are quite alike
  rank.pid = 40000 + local_rank;
  rank.state = "running";
  rank.up_s = 3600.25 + drift;
  rank.cpu = 1.037 + drift;
  rank.idle_s = 0;
  rank.memory = 9 * kGiB + 4096 * rank.rank;
  rank.gpu = 0.97 - drift;
  rank.gpu_memory = 71 * kGiB;
  rank.phase = launcher::ProgramPhase::kTrain;
  rank.phase_s = 3512.5 + drift;
  rank.step = step;
  rank.step_age_s = 0.213 + drift;
  rank.step_s = 0.4312 + drift;
  rank.longest_step_s = 1.731 + drift;
  rank.samples_per_s = 148.42 - drift;
  rank.self_s = 0.3517 + drift;
  rank.exposed_share = 0.1124 + drift;
  rank.first_step_s = 41.7 + drift;
  const auto operations = static_cast<uint64_t>(27 * step);
  rank.groups = {
      Group(0xfedcba9876543210, "world", rank.rank, place.world_size, operations),
      Group(0x1000 + static_cast<uint64_t>(place.node_rank), "node", local_rank, kRanksOfNode,
            2 * operations),
  };
  rank.last_line = "epoch 3: step " + std::to_string(step) + " loss 2.1374 lr 0.000300";
  rank.last_line_age_s = 0.7 + drift;
  return rank;
}

}  // namespace

NodeView TrainingNode(const rendezvous::Assignment& place, const std::string& id, int64_t step) {
  NodeView node{.id = id, .host = id, .node_rank = place.node_rank, .state = "running"};
  node.up_s = 3702.5;
  node.memory_used = 212 * kGiB;
  node.memory_limit = 1024 * kGiB;
  for (int i = 0; i < kRanksOfNode; ++i) {
    node.ranks.push_back(Rank(place, i, step));
    launcher::GpuView gpu{.index = i, .name = "NVIDIA H100 80GB HBM3"};
    gpu.utilisation = 0.97;
    gpu.memory_used = 71 * kGiB;
    gpu.memory_total = 80 * kGiB;
    gpu.temperature = 58 + i;
    node.gpus.push_back(gpu);
  }
  return node;
}

}  // namespace ddprun::bench
