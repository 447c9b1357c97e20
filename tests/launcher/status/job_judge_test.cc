#include "launcher/status/job_judge.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/status/job_scene.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("judge: a job that forms is well, and waits for what the coordinator says") {
  JobView job{.state = "forming", .min_nodes = 2, .max_nodes = 2};
  job.waiting_for = "1 of 2 nodes, waiting for 1 more";
  Watch watch;
  watch.Look(job);
  CHECK(job.is_healthy);
  CHECK(job.waiting_line == "1 of 2 nodes, waiting for 1 more");
  job.waiting_left_s = 24.2;
  watch.Look(job);
  CHECK(job.waiting_line == "1 of 2 nodes, waiting for 1 more, 25 s left");
  job.waiting_for = "";
  job.nodes.push_back({.id = "a", .waiting_for = "the coordinator at n1:29400"});
  watch.Look(job);
  CHECK(job.waiting_line == "the coordinator at n1:29400");
  CHECK(watch.lines().empty());
}

TEST_CASE("judge: a failure makes a job unwell until its next round runs") {
  JobView job = RunningJob(2, 2);
  job.first_fault = FaultView{
      .rank = 3, .host = "gpu-01", .text = "killed by signal 9 (SIGKILL)", .round = 1, .age_s = 2};
  Watch watch;
  const auto is_healthy = [&](const char* state, uint64_t round) {
    job.state = state;
    job.round = round;
    watch.Look(job);
    return job.is_healthy;
  };
  CHECK_FALSE(is_healthy("stopping", 1));
  CHECK(ProblemOf(job, "failure") ==
        Problem{"failure",
                "rank 3 (node gpu-01) failed: killed by signal 9 (SIGKILL)",
                {3},
                "gpu-01",
                2});
  CHECK_FALSE(is_healthy("forming", 1));
  CHECK_FALSE(is_healthy("starting", 2));
  CHECK(is_healthy("running", 2));
  CHECK(is_healthy("stopping", 2));
  CHECK(is_healthy("forming", 2));
  CHECK(is_healthy("starting", 3));
  CHECK(is_healthy("ended", 2));
  CHECK_FALSE(is_healthy("ended", 1));
}

TEST_CASE("judge: what another node has found of the job is shown until it is seen here, too") {
  JobView job = RunningJob(2, 2);
  LetAllWaitFor(job, {2}, 40);
  const Problem told{"hang", "rank 2 has not come", {2}, "", 41};
  job.nodes[0].problems = {told, {"no_progress", "no step has ended", {}, "", 12}};
  Watch watch;
  watch.Look(job);
  CHECK(ProblemOf(job, "hang") == told);
  CHECK(watch.lines().empty());
  watch.Look(job, 1.5);
  CHECK(job.problems.size() == 1);
  CHECK(ProblemOf(job, "hang").since_s == 40);
  job.state = "stopping";
  watch.Look(job);
  CHECK(job.is_healthy);
}

TEST_CASE(
    "judge: nodes that are gone come before the failures that they cause, until a round begins") {
  JobView job = RunningJob(2, 2);
  job.state = "forming";
  job.gone_nodes = "node gpu-01 is lost: silent for 10 s";
  job.first_fault = FaultView{.rank = 0, .text = "exit code 1", .round = 1};
  Watch watch;
  watch.Look(job);
  REQUIRE(job.problems.size() == 2);
  CHECK(job.problems[0] == Problem{"lost_node", "node gpu-01 is lost: silent for 10 s", {}, "", 0});
  CHECK(job.problems[1].kind == "failure");
  watch.Look(job, 5);
  CHECK(job.problems[0].since_s == 5);
  job.gone_nodes.clear();
  job.state = "running";
  job.round = 2;
  watch.Look(job);
  CHECK(job.is_healthy);
}

TEST_CASE("judge: the node of a coordinator that is gone is named by those that saw it go") {
  JobView job = RunningJob(2, 2);
  job.nodes.pop_back();
  job.state = "forming";
  job.round = 0;  // the new coordinator knows of none
  job.nodes[0].gone_node = "node gpu-01 is lost: the coordinator's process there is gone";
  Watch watch;
  watch.Look(job);
  CHECK(ProblemOf(job, "lost_node").text == job.nodes[0].gone_node);
  CHECK_FALSE(job.is_healthy);
  job.state = "running";
  watch.Look(job);
  CHECK(job.is_healthy);
}

TEST_CASE("judge: a job that forms again for long is not well, one that forms first is") {
  JobView job = RunningJob(1, 2);
  job.state = "forming";
  Watch watch;
  watch.Look(job);
  CHECK(job.is_healthy);
  watch.Look(job, 31);
  CHECK(ProblemOf(job, "lost_node").text == "no round has begun for 31 s after the last one ended");
  job.state = "running";
  watch.Look(job);
  CHECK(job.is_healthy);
  JobView first = RunningJob(1, 2);
  first.state = "forming";
  first.round = 0;
  Watch other;
  other.Look(first);
  other.Look(first, 600);
  CHECK(first.is_healthy);
}

TEST_CASE("judge: where the coordinator does not answer no other node is called lost") {
  JobView job = RunningJob(2, 2);
  job.nodes[1].hosts_coordinator = true;
  job.nodes[1].age_s = 42;
  job.coordinator_silent_s = 42;
  Watch watch;
  watch.Look(job);
  REQUIRE(job.problems.size() == 1);
  CHECK(
      job.problems[0].text ==
      "the coordinator of node gpu-01 has not answered for 42 s; what other nodes do is not known");
}

TEST_CASE("judge: nobody has asked for a while, so a silence begins when it is seen") {
  JobView job = RunningJob(2, 2);
  Watch watch;
  watch.Look(job);
  job.silent_nodes = {"gpu-01"};
  job.nodes[1].age_s = 90;
  watch.Look(job, 90);
  CHECK(ProblemOf(job, "lost_node").text == "node gpu-01 has not answered");
  job.nodes[1].age_s = 95;
  watch.Look(job, 5);
  CHECK(ProblemOf(job, "lost_node").text == "node gpu-01 has not answered for 5 s");
  SUBCASE("and that of a job which ends is none") {
    job.is_ending = true;
    watch.Look(job);
    CHECK(job.is_healthy);
  }
}

TEST_CASE("judge: two agents of one host have names that tell them apart") {
  JobView job = RunningJob(2, 2);
  job.nodes[1].host = "gpu-00";
  job.nodes.push_back({.id = "0123456789", .host = "gpu-00"});
  job.nodes.push_back({.id = "0123456\u0448", .host = "gpu-00"});  // not cut within a character
  LetAllWaitFor(job, {3}, 42);
  Watch watch;
  watch.LookTwice(job);
  CHECK(job.nodes[0].name == "gpu-00 (node 0)");
  CHECK(job.nodes[1].name == "gpu-00 (node 1)");
  CHECK(job.nodes[2].name == "gpu-00 (01234567)");
  CHECK(job.nodes[3].name == "gpu-00 (0123456)");
  CHECK(ProblemOf(job, "hang").text == Contains("rank 3 (node gpu-00 (node 1))"));
  // A silent one is told once.
  job.silent_nodes = {"gpu-00"};
  job.nodes[1].age_s = 15;  // one of them, perhaps, since the look before
  watch.Look(job);
  std::vector<std::string> lost;
  for (const Problem& problem : job.problems) {
    if (problem.kind == "lost_node") lost.push_back(problem.text);
  }
  CHECK(lost == std::vector<std::string>{"node gpu-00 (node 1) has not answered for 14 s"});
  CHECK(ProblemOf(job, "lost_node").node == "gpu-00");
}

TEST_CASE("judge: what the coordinator has told a node that joins is not said twice") {
  JobView job = RunningJob(2, 1);
  job.state = "forming";
  job.waiting_for = job.nodes[0].waiting_for = "1 of 2 nodes, waiting for 1 more";
  job.nodes[0].state = "joining";
  job.nodes[0].waiting_left_s = 583;
  job.nodes[1].waiting_for = "a file";
  Watch watch;
  watch.Look(job);
  CHECK(job.nodes[0].waiting_for == "");
  CHECK(!job.nodes[0].waiting_left_s);
  CHECK(job.nodes[1].waiting_for == "a file");
  job.waiting_for = job.nodes[1].waiting_for = "the ranks were asked to end";
  job.nodes[1].state = "running";
  watch.Look(job);
  CHECK(job.waiting_line == "the ranks were asked to end");
  CHECK(job.nodes[1].waiting_for == "");
}

TEST_CASE("judge: nodes that do not answer make a job unwell") {
  JobView job = RunningJob(3, 1);
  job.silent_nodes = {"gpu-07"};
  Watch watch;
  watch.Look(job);
  CHECK(ProblemOf(job, "lost_node") ==
        Problem{"lost_node", "node gpu-07 has not answered", {}, "gpu-07", 0});
  watch.Look(job, 12);
  CHECK(ProblemOf(job, "lost_node").text == "node gpu-07 has not answered for 12 s");
  job.silent_nodes.clear();
  job.nodes[1].age_s = 9.9;
  watch.Look(job);
  CHECK(job.is_healthy);
  job.nodes[1].age_s = 11;
  watch.Look(job);
  CHECK(ProblemOf(job, "lost_node").text == "node gpu-01 has not answered for 10 s");
  job.silent_nodes = {"gpu-01"};
  watch.Look(job);
  CHECK(job.problems.size() == 1);
  for (int i = 10; i < 20; ++i) job.silent_nodes.push_back("gpu-" + std::to_string(i));
  watch.Look(job);
  REQUIRE(job.problems.size() == 1);
  CHECK(job.problems[0].text ==
        "11 nodes have not answered for up to 12 s: gpu-01, gpu-10, gpu-11, gpu-12, gpu-13, "
        "gpu-14, gpu-15, gpu-16 and 3 more");
}

// Each silent node was looked for among all nodes once.
TEST_CASE("judge: of ten thousand nodes the half that is silent is one problem") {
  constexpr int kNodes = 10'000;
  JobView job;
  job.state = "running";
  job.round = 1;
  for (int i = 0; i < kNodes; ++i) {
    NodeView node;
    node.id = "id-" + std::to_string(i);
    node.host = "host-of-a-long-name-" + std::to_string(i);
    node.state = "running";
    node.node_rank = i;
    node.age_s = i % 2;
    if (node.age_s > 0) job.silent_nodes.push_back(node.host);
    job.nodes.push_back(std::move(node));
  }
  Watch watch;
  watch.Look(job);
  REQUIRE(job.problems.size() == 1);
  CHECK(job.problems[0].kind == "lost_node");
  CHECK(job.problems[0].text == Contains("5000 nodes have not answered"));
}

TEST_CASE("judge: what a node finds is a problem, and said once") {
  JobView job = RunningJob(2, 1);
  job.nodes[1].problems = {{.kind = "disk", .text = "/tmp has 1.2 GiB left"}};
  Watch watch;
  watch.Look(job);
  CHECK(job.is_healthy);  // it is told, and keeps nobody from the work
  CHECK(ProblemOf(job, "disk").node == "gpu-01");
  job.nodes[1].problems[0].text = "/tmp has 1.1 GiB left";
  watch.Look(job);
  CHECK(watch.lines() == Lines{"node gpu-01: /tmp has 1.2 GiB left"});
  job.nodes[1].problems.push_back({.kind = "oom", .text = "rank 1 was killed", .ranks = {1}});
  watch.Look(job);
  CHECK(watch.lines().size() == 2);
  CHECK(job.problems[0].kind == "oom");
  SUBCASE("again when it has been well for a minute") {
    const std::vector<Problem> problems = job.nodes[1].problems;
    job.nodes[1].problems.clear();
    watch.Look(job, 30);
    CHECK(job.is_healthy);
    job.nodes[1].problems = problems;
    watch.Look(job, 20);
    CHECK(watch.lines().size() == 2);
    job.nodes[1].problems.clear();
    watch.Look(job, 60);
    job.nodes[1].problems = problems;
    watch.Look(job);
    CHECK(watch.lines().size() == 4);
  }
}

TEST_CASE("judge: the worst problem comes first") {
  JobView job = RunningJob(2, 2);
  LetAllWaitFor(job, {1}, 42);
  job.silent_nodes = {"gpu-09"};
  job.nodes[0].problems = {{.kind = "throttling"}, {.kind = "gpu"}, {.kind = "unheard of"}};
  Watch watch;
  watch.LookTwice(job);
  Lines kinds;
  for (const Problem& problem : job.problems) kinds.push_back(problem.kind);
  CHECK(kinds == Lines{"hang", "lost_node", "gpu", "throttling", "unheard of"});
}

TEST_CASE("judge: phases and short waits are well, and so is a job that has ended") {
  JobView job = RunningJob(2, 2);
  Watch watch;
  for (const ProgramPhase phase : {ProgramPhase::kStart, ProgramPhase::kEvaluation,
                                   ProgramPhase::kCheckpoint, ProgramPhase::kTrain}) {
    for (int rank = 0; rank < 4; ++rank) RankOf(job, rank).phase = phase;
    watch.Look(job);
    CHECK(job.is_healthy);
  }
  job.state = "ended";
  watch.Look(job);
  CHECK(job.is_healthy);
  CHECK(watch.lines().empty());
}

TEST_CASE("judge: a judged view can be judged again") {
  JobView job = RunningJob(2, 2);
  LetAllWaitFor(job, {1}, 42);
  Watch watch;
  watch.LookTwice(job);
  const JobView before = job;
  watch.Look(job, 0);
  job.stall_s = before.stall_s;
  CHECK(job == before);
}

TEST_CASE("judge: the time of the job is filled in") {
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  Watch watch;
  for (int i = 0; i <= 10; ++i) watch.Look(job);
  CHECK(*job.effective_share == 1);
  for (int i = 0; i <= 10; ++i) {
    RankOf(job, 1).checkpoint_s = i;
    watch.Look(job);
  }
  CHECK(job.checkpoint_s == doctest::Approx(10));
  CHECK(*job.effective_share == doctest::Approx(11.0 / 21));
  CHECK(watch.judge().ledger().total_s() == doctest::Approx(21));
}

}  // namespace
}  // namespace ddprun::launcher
