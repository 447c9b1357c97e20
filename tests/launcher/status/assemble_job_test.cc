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
