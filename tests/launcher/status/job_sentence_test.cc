#include "launcher/status/job_sentence.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "tests/launcher/status/job_scene.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

std::string Sentence(JobView job) {
  Watch watch;
  watch.Look(job);
  return job.sentence;
}

TEST_CASE("sentence: a job that trains") {
  JobView job = RunningJob(4, 8);
  job.round = 2;
  job.up_s = 11520;
  LetStep(job, 18240, 0.1);
  RankOf(job, 3).step = 18241;
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) rank.samples_per_s = 12.875;
  }
  job.restart_count = 1;
  job.first_fault = FaultView{.rank = 3, .text = "killed by signal 9 (SIGKILL)", .round = 1};
  CHECK(Sentence(job) ==
        "running: round 2, 4 of 4 nodes, 32 ranks, step 18,240, 412 samples/s, up 3 h 12 min, 1 "
        "restart (rank 3 killed by signal 9 (SIGKILL))");
  SUBCASE("a rank that tells no rate leaves the job without one") {
    RankOf(job, 9).samples_per_s.reset();
    job.restart_count = 2;
    job.first_fault->text = "exit code 1\nboom";
    CHECK(Sentence(job) ==
          "running: round 2, 4 of 4 nodes, 32 ranks, step 18,240, up 3 h 12 min, 2 restarts (the "
          "last: rank 3: exit code 1\\nboom)");
  }
  SUBCASE("so does one that is not heard of, and one that tells nonsense") {
    NodeOf(job, 9).age_s = 30;
    CHECK(Sentence(job) != Contains("samples/s"));
    NodeOf(job, 9).age_s = 0;
    CHECK(Sentence(job) == Contains("samples/s"));
    RankOf(job, 9).samples_per_s = std::numeric_limits<double>::quiet_NaN();
    CHECK(Sentence(job) != Contains("samples/s"));
  }
}

TEST_CASE("sentence: a job that forms, of as many nodes as there are") {
  JobView job{.state = "forming", .min_nodes = 2, .max_nodes = 2, .up_s = 12};
  CHECK(Sentence(job) == "forming: up 12 s");
  job.nodes.push_back({.id = "a", .state = "joining"});
  CHECK(Sentence(job) == "forming: 1 of 2 nodes, up 12 s");
  job.max_nodes = 4;
  job.nodes.push_back({.id = "b", .state = "leaving"});
  CHECK(Sentence(job) == "forming: 1 of 2 to 4 nodes, up 12 s");
}

TEST_CASE("sentence: a node more than there is room for is a spare, also while the job forms") {
  JobView job{.state = "forming", .min_nodes = 2, .max_nodes = 2, .up_s = 12};
  for (const char* id : {"a", "b", "c"}) job.nodes.push_back({.id = id, .state = "joining"});
  CHECK(Sentence(job) == "forming: 2 of 2 nodes, 1 spare, up 12 s");
  job.min_nodes = 1;
  CHECK(Sentence(job) == "forming: 2 of 1 to 2 nodes, 1 spare, up 12 s");
  job.min_nodes = job.max_nodes = 1;
  CHECK(Sentence(job) == "forming: 1 node, 2 spares, up 12 s");
}

TEST_CASE("sentence: a program that reports nothing") {
  JobView job = RunningJob(1, 4);
  job.up_s = 42;
  CHECK(Sentence(job) ==
        "running: round 1, 1 node, 4 ranks, up 42 s (the program reports no steps)");
  RankOf(job, 0).phase = ProgramPhase::kTrain;
  CHECK(Sentence(job) == "running: round 1, 1 node, 4 ranks, up 42 s");
}

TEST_CASE("sentence: phases, spares, other states") {
  JobView job = RunningJob(3, 1);
  job.min_nodes = 2;
  job.max_nodes = 4;
  job.up_s = 42;
  LetStep(job, 5, 0);
  job.nodes.push_back({.id = "spare", .state = "joining"});
  CHECK(Sentence(job) == "running: round 1, 3 of 2 to 4 nodes, 3 ranks, 1 spare, step 5, up 42 s");
  job.nodes.pop_back();
  RankOf(job, 1).phase = ProgramPhase::kEvaluation;
  RankOf(job, 1).phase_s = 0.9;
  CHECK(Sentence(job) == "running: round 1, 3 of 2 to 4 nodes, 3 ranks, step 5, up 42 s");
  RankOf(job, 1).phase_s = 30;
  CHECK(Sentence(job) ==
        "running: round 1, 3 of 2 to 4 nodes, 3 ranks, step 5, evaluation for 30 s on 1 of 3 "
        "ranks, up 42 s");
  RankOf(job, 2).phase = ProgramPhase::kCheckpoint;
  RankOf(job, 2).phase_s = 3;
  CHECK(Sentence(job) == Contains("checkpoint for 3 s on 1 of 3 ranks"));
  for (int rank = 0; rank < 3; ++rank) {
    RankOf(job, rank).phase = ProgramPhase::kStart;
    RankOf(job, rank).phase_s = 7;
    RankOf(job, rank).step.reset();
  }
  CHECK(Sentence(job) == "running: round 1, 3 of 2 to 4 nodes, 3 ranks, start for 7 s, up 42 s");
  job.state = "stopping";
  CHECK(Sentence(job) == "stopping: round 1, 3 of 2 to 4 nodes, 3 ranks, up 42 s");
  CHECK(Sentence(JobView{}) == "unknown: up 0 s");
}

TEST_CASE("figures: of the job, as far as all tell") {
  JobView job = RunningJob(1, 2);
  LetStep(job, 5, 0);
  RankOf(job, 0).step_s = 0.1;
  RankOf(job, 1).step_s = 0.3;
  RankOf(job, 0).exposed_share = 0.5;
  Watch watch;
  watch.Look(job);
  CHECK(*job.step == 5);
  CHECK(*job.step_s == doctest::Approx(0.2));
  CHECK_FALSE(job.exposed_share);
  SUBCASE("a rank that has ended does not hold them back") {
    RankOf(job, 0).state = "ended";
    RankOf(job, 1).step = 9;
    watch.Look(job);
    CHECK(*job.step == 9);
    CHECK(*job.step_s == doctest::Approx(0.3));
  }
  SUBCASE("of a job that has ended they are the last") {
    for (const int rank : {0, 1}) RankOf(job, rank).state = "ended";
    watch.Look(job);
    CHECK(*job.step == 5);
  }
}

}  // namespace
}  // namespace ddprun::launcher
