#include "tests/launcher/status/job_scene.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

JobView RunningJob(int nodes, int ranks_per_node) {
  JobView job{.run_id = "job", .state = "running", .round = 1};
  job.min_nodes = job.max_nodes = job.node_count = nodes;
  job.world_size = nodes * ranks_per_node;
  job.up_s = 3600;
  for (int n = 0; n < nodes; ++n) {
    NodeView node{.id = absl::StrCat("n", n), .host = absl::StrCat("gpu-0", n), .node_rank = n};
    node.state = "running";
    node.up_s = 3600;
    for (int i = 0; i < ranks_per_node; ++i) {
      RankView rank{.rank = n * ranks_per_node + i, .local_rank = i, .pid = 100 + i};
      rank.state = "running";
      rank.up_s = 3600;
      rank.cpu = 1;
      rank.idle_s = 0;
      GroupView world{.key = kWorldKey, .name = "world", .rank = rank.rank, .size = job.world_size};
      world.called = world.done = 100;
      world.op = "all-reduce";
      world.quiet_s = 0.1;
      rank.groups = {world};
      node.ranks.push_back(rank);
    }
    job.nodes.push_back(node);
  }
  return job;
}

RankView& RankOf(JobView& job, int rank) {
  for (NodeView& node : job.nodes) {
    for (RankView& view : node.ranks) {
      if (view.rank == rank) return view;
    }
  }
  return job.nodes.at(0).ranks.at(0);
}

NodeView& NodeOf(JobView& job, int rank) {
  for (NodeView& node : job.nodes) {
    for (const RankView& view : node.ranks) {
      if (view.rank == rank) return node;
    }
  }
  return job.nodes.at(0);
}

GroupView& WorldOf(JobView& job, int rank) { return RankOf(job, rank).groups.at(0); }

void LetWait(RankView& rank, uint64_t number, double waiting_s, size_t group) {
  GroupView& view = rank.groups.at(group);
  view.called = number;
  view.done = number - 1;
  view.waiting_s = view.quiet_s = waiting_s;
  for (GroupView& other : rank.groups) {
    if (other.quiet_s < waiting_s) other.quiet_s = waiting_s + 0.1;
  }
}

void LetAllWaitFor(JobView& job, const std::vector<int>& late, double waiting_s) {
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) LetWait(rank, 101, waiting_s);
  }
  for (const int rank : late) {
    GroupView& world = WorldOf(job, rank);
    world.called = world.done = 100;
    world.waiting_s = 0;
    world.quiet_s = waiting_s + 1;
  }
}

void LetStep(JobView& job, int64_t step, double age_s) {
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      rank.phase = ProgramPhase::kTrain;
      rank.step = step;
      rank.step_age_s = age_s;
      rank.longest_step_s = 1;
    }
  }
}

void AddGroup(JobView& job, uint64_t key, const std::string& name, const std::vector<int>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    GroupView group{.key = key, .name = name, .rank = static_cast<int>(i)};
    group.size = static_cast<int>(ranks.size());
    group.called = group.done = 10;
    group.op = "all-gather";
    group.quiet_s = 0.1;
    RankOf(job, ranks[i]).groups.push_back(group);
  }
}

TimePoint At(double seconds) {
  return TimePoint{} + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

JudgedNews Watch::Look(JobView& job, double after_s) {
  now_s_ += after_s;
  JudgedNews news = judge_.Look(At(now_s_), job);
  lines_.insert(lines_.end(), news.lines.begin(), news.lines.end());
  return news;
}

JudgedNews Watch::LookTwice(JobView& job) {
  Look(job);
  return Look(job, 1.5);
}

Problem ProblemOf(const JobView& job, const std::string& kind) {
  for (const Problem& problem : job.problems) {
    if (problem.kind == kind) return problem;
  }
  return {};
}

}  // namespace ddprun::launcher
