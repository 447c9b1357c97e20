#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/status/assemble_job.h"
#include "launcher/status/snapshot_json.h"
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

rendezvous::NodeAnswer AnswerOf(const std::string& id, const std::string& host, int node_rank) {
  NodeView node;
  node.id = "what it says itself does not count";
  node.node_rank = node_rank;
  node.state = "running";
  return {.node = NodeId{id}, .host = host, .body = RenderNodeJson(node)};
}

TEST_CASE("assemble job: agents of one host are told apart by their ids, and speak once each") {
  JobView job = testing::TrainingJob(1, 1);
  job.nodes[0].id = "own";
  job.nodes[0].host = "gpu-7";
  job.nodes[0].node_rank = 1;
  rendezvous::GiveAnswers answers{.session = {}, .id = 1, .answers = {}, .is_last = true};
  answers.answers = {AnswerOf("b", "gpu-7", 2), AnswerOf("c", "gpu-7", 0),
                     AnswerOf("b", "gpu-7", 5), AnswerOf("own", "gpu-7", 6)};
  answers.answers.push_back({.node = NodeId{"d"}, .host = "gpu-7", .body = "no JSON"});
  job = AssembleJob(std::move(job), answers, TimePoint());
  std::string ids;
  for (const NodeView& node : job.nodes) ids += node.id + " ";
  CHECK(ids == "c own b ");
  CHECK(job.silent_nodes == std::vector<std::string>{"gpu-7"});
}

TEST_CASE("assemble job: ten thousand nodes answer, each twice") {
  constexpr int kNodes = 10'000;
  rendezvous::GiveAnswers answers{.session = {}, .id = 1, .answers = {}, .is_last = true};
  for (int i = 0; i < 2 * kNodes; ++i) {
    const int node = i % kNodes;
    answers.answers.push_back(
        AnswerOf("agent-of-a-long-name-" + std::to_string(node), "host", kNodes - 1 - node));
  }
  const JobView job = AssembleJob({}, answers, TimePoint());
  REQUIRE(job.nodes.size() == kNodes);
  for (int i = 0; i < kNodes; ++i) REQUIRE(job.nodes[static_cast<size_t>(i)].node_rank == i);
}

TEST_CASE("assemble job: a round runs where this node is a spare, or joins it just now") {
  rendezvous::GiveAnswers answers{.session = {}, .id = 1, .answers = {}, .is_last = true};
  answers.facts.run_id = "digits";
  const auto state = [&](const char* here, const char* phase) {
    answers.facts.phase = phase;
    JobView job;
    job.state = here;
    return AssembleJob(std::move(job), answers, TimePoint()).state;
  };
  CHECK(state("forming", "running") == "running");
  CHECK(state("starting", "running") == "starting");
  CHECK(state("stopping", "running") == "stopping");
  CHECK(state("running", "forming") == "forming");
  CHECK(state("", "running") == "running");
}

TEST_CASE("assemble job: a job whose end is on its way to ranks that run is being stopped") {
  rendezvous::GiveAnswers answers{.session = {}, .id = 1, .answers = {}, .is_last = true};
  answers.facts.run_id = "digits";
  answers.facts.phase = "ended";
  JobView job = testing::TrainingJob(1, 2);
  CHECK(AssembleJob(job, answers, TimePoint()).state == "stopping");
  for (RankView& rank : job.nodes[0].ranks) rank.state = "ended";
  CHECK(AssembleJob(job, answers, TimePoint()).state == "ended");
}

TEST_CASE("assemble job: when this node's round was over says nothing of a later round") {
  rendezvous::GiveAnswers answers{.session = {}, .id = 1, .answers = {}, .is_last = true};
  answers.facts.run_id = "digits";
  answers.facts.phase = "forming";
  const auto over_s = [&](uint64_t round) {
    answers.facts.round = Round{round};
    JobView job{.state = "forming", .round = 2, .round_over_s = 30};
    return AssembleJob(std::move(job), answers, TimePoint()).round_over_s;
  };
  CHECK(over_s(2) == 30);
  CHECK(!over_s(3));
  CHECK(over_s(0) == 30);
}

TEST_CASE("assemble job: the rank that failed first has ended, whatever its node said last") {
  JobView job = testing::TrainingJob(2, 2);
  job.state = "stopping";
  job.first_fault = FaultView{.rank = 3, .host = "b", .text = "exit code 5", .round = job.round};
  NodeView& node = job.nodes[1];
  node.age_s = 4;
  const RankView& failed = node.ranks[1];
  REQUIRE(failed.rank == 3);
  REQUIRE(failed.state == "running");
  SUBCASE("said before it failed") {
    EndFirstFailed(job);
    CHECK(failed.state == "ended");
    CHECK(failed.end == "exit code 5");
    CHECK(node.ranks[0].state == "running");
  }
  SUBCASE("said just now") { node.age_s = 0; }
  SUBCASE("of an earlier round") { --job.first_fault->round; }
  SUBCASE("of a job that runs again") { job.state = "running"; }
  const std::string before = failed.state;
  EndFirstFailed(job);
  CHECK(failed.state == before);
}

}  // namespace
}  // namespace ddprun::launcher
