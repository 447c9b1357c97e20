#include <doctest/doctest.h>

#include <utility>

#include "launcher/status/assemble_job.h"
#include "tests/launcher/status/snapshots.h"

namespace ddprun::launcher {
namespace {

JobView Assembled(int nodes, int ranks_of_each) {
  JobView job = testing::TrainingJob(nodes, ranks_of_each);
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      rank.backward_s = 0.5;
      rank.buckets.emplace_back();
    }
  }
  return AssembleJob(std::move(job), {}, TimePoint());
}

TEST_CASE("assemble job: the buckets of more than 512 ranks are left out") {
  JobView job = Assembled(64, 8);
  CHECK(job.nodes[63].ranks[7].buckets.size() == 1);
  CHECK(job.nodes[63].ranks[7].backward_s == 0.5);
  job = Assembled(19, 27);
  for (const NodeView& node : job.nodes) {
    for (const RankView& rank : node.ranks) {
      CHECK(rank.buckets.empty());
      CHECK(!rank.backward_s);
    }
  }
}

}  // namespace
}  // namespace ddprun::launcher
