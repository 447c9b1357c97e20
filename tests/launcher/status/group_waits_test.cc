// Promises of hang_watch.h about ranks that are late for a good reason, and about several groups.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/status/hang_watch.h"
#include "tests/launcher/status/job_scene.h"

namespace ddprun::launcher {
namespace {

using Ranks = std::vector<int>;

TEST_CASE("first step: a rank that computes towards it gets ten minutes, an idle one does not") {
  JobView job = RunningJob(1, 4);
  LetAllWaitFor(job, {2}, 120);
  for (RankView& rank : job.nodes[0].ranks) rank.phase = ProgramPhase::kStart;
  Watch watch;
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.is_healthy);
  CHECK(job.waiting_line == "waiting for rank 2, which is slow to its first step, for 2 min");
  SUBCASE("ten minutes") {
    LetAllWaitFor(job, {2}, 600);
    CHECK(watch.LookTwice(job).hang);
  }
  SUBCASE("no CPU used") {
    RankOf(job, 2).cpu = 0.01;
    CHECK(watch.LookTwice(job).hang);
  }
  SUBCASE("no CPU time for long, and how much is not known") {
    RankOf(job, 2).cpu.reset();
    CHECK_FALSE(watch.LookTwice(job).hang);
    RankOf(job, 2).idle_s = 110;
    CHECK(watch.LookTwice(job).hang);
  }
  SUBCASE("it has ended a step") {
    LetStep(job, 1, 121);
    CHECK(watch.LookTwice(job).hang);
  }
  SUBCASE("it is not even started") {
    RankOf(job, 2).state = "starting";
    RankOf(job, 2).groups.clear();
    CHECK_FALSE(watch.LookTwice(job).hang);
  }
}

TEST_CASE("first step: a program that reports none is young for ten minutes") {
  JobView job = RunningJob(1, 4);
  LetAllWaitFor(job, {2}, 120);
  for (RankView& rank : job.nodes[0].ranks) rank.up_s = 150;
  Watch watch;
  CHECK_FALSE(watch.LookTwice(job).hang);
  for (RankView& rank : job.nodes[0].ranks) rank.up_s = 700;
  CHECK(watch.LookTwice(job).hang);
}

TEST_CASE("first step: a first operation that all are in may carry a model") {
  JobView job = RunningJob(1, 4);
  LetAllWaitFor(job, {}, 120);
  for (RankView& rank : job.nodes[0].ranks) rank.phase = ProgramPhase::kStart;
  Watch watch;
  CHECK_FALSE(watch.LookTwice(job).hang);
  for (RankView& rank : job.nodes[0].ranks) rank.cpu = 0;
  CHECK(watch.LookTwice(job).hang);
}

TEST_CASE("groups: the culprit is who waits in none") {
  JobView job = RunningJob(1, 4);
  AddGroup(job, 5, "left", {0, 1});
  AddGroup(job, 6, "right", {1, 2});
  // 0 waits for 1, which waits for 2; 3 waits for all in the group of all.
  LetWait(RankOf(job, 0), 11, 50, 1);
  LetWait(RankOf(job, 1), 11, 48, 2);
  LetWait(RankOf(job, 3), 101, 49, 0);
  for (GroupView& group : RankOf(job, 2).groups) group.quiet_s = 60;
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == Ranks{2});
  CHECK(news.hang->text ==
        "rank 2 has not come to all-reduce #101 of group world for 49 s; ranks 0-1, 3 wait for it; "
        "it computes "
        "(1.0 cores)");
  CHECK(job.problems.size() == 1);
  CHECK(watch.lines().size() == 1);

  SUBCASE("in whichever group it is awaited for longest") {
    LetWait(RankOf(job, 1), 11, 60, 2);
    const JudgedNews again = watch.LookTwice(job);
    REQUIRE(again.hang);
    CHECK_FALSE(again.hang->is_new);
    CHECK(watch.lines().size() == 1);
  }
}

TEST_CASE("groups: a late rank that waits in its turn now is still late") {
  JobView job = RunningJob(1, 4);
  AddGroup(job, 5, "left", {0, 1});
  AddGroup(job, 6, "right", {1, 2});
  LetWait(RankOf(job, 0), 11, 50, 1);
  for (GroupView& group : RankOf(job, 1).groups) group.quiet_s = 60;
  Watch watch;
  CHECK(watch.LookTwice(job).hang->ranks == Ranks{1});
  LetWait(RankOf(job, 1), 11, 5, 2);
  CHECK_FALSE(watch.Look(job).hang);
  CHECK(ProblemOf(job, "hang").ranks == Ranks{1});
  CHECK(watch.lines().size() == 1);
  LetWait(RankOf(job, 1), 11, 35, 2);
  RankOf(job, 2).groups[1].quiet_s = RankOf(job, 2).groups[0].quiet_s = 60;
  CHECK(watch.LookTwice(job).hang->ranks == Ranks{2});
  CHECK(watch.lines().size() == 2);
}

TEST_CASE("groups: a rank that ended in an operation long ago hides no later hang") {
  JobView job = RunningJob(1, 4);
  LetAllWaitFor(job, {1}, 42);
  LetWait(RankOf(job, 0), 50, 900);
  RankOf(job, 0).state = "ended";
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == Ranks{0, 1});
}

TEST_CASE("groups: who is late is told by the lowest operation in which anybody waits") {
  JobView job = RunningJob(1, 4);
  LetAllWaitFor(job, {2}, 42);
  // One has called more meanwhile, another has seen the root's part end already.
  WorldOf(job, 0).called = 105;
  WorldOf(job, 3).done = 101;
  WorldOf(job, 3).called = 102;
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->text ==
        "rank 2 has not come to all-reduce #101 for 42 s; ranks 0-1 wait for it; it computes (1.0 "
        "cores)");
}

TEST_CASE("ranks: one that moved to another node is judged by the newer view") {
  for (const int older : {0, 1}) {
    JobView job = RunningJob(2, 2);
    LetAllWaitFor(job, {1}, 42);
    NodeView copy = job.nodes[0];
    copy.id = "old";
    copy.host = "gpu-09";
    LetWait(copy.ranks[1], 101, 42);
    copy.age_s = 5;
    job.nodes.insert(job.nodes.begin() + older * 2, copy);
    Watch watch;
    const JudgedNews news = watch.LookTwice(job);
    REQUIRE(news.hang);
    CHECK(news.hang->text.substr(0, 21) == "rank 1 (node gpu-00) ");
  }
}

TEST_CASE("ranks: what is left of a larger round is none of this one") {
  JobView job = RunningJob(2, 2);
  job.world_size = 2;
  for (int rank = 0; rank < 4; ++rank) WorldOf(job, rank).size = 2;
  LetAllWaitFor(job, {3}, 42);
  Watch watch;
  watch.LookTwice(job);
  CHECK(ProblemOf(job, "hang").text ==
        "all ranks are in all-reduce #101 for 42 s and it does not end");
}

TEST_CASE("groups: only the one that is stuck is named in a job of several") {
  JobView job = RunningJob(2, 2);
  AddGroup(job, 5, "pipe", {1, 3});
  LetWait(RankOf(job, 1), 11, 40, 1);
  for (GroupView& group : RankOf(job, 3).groups) group.quiet_s = 41;
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->text ==
        "rank 3 (node gpu-01) has not come to all-gather #11 of group pipe for 40 s; rank 1 waits "
        "for it; it computes (1.0 cores)");
}

TEST_CASE("groups: two that are stuck apart are two hangs") {
  JobView job = RunningJob(1, 4);
  AddGroup(job, 5, "a", {0, 1});
  AddGroup(job, 6, "b", {2, 3});
  for (const int rank : {1, 3}) {
    for (GroupView& group : RankOf(job, rank).groups) group.quiet_s = 60;
  }
  LetWait(RankOf(job, 0), 11, 40, 1);
  LetWait(RankOf(job, 2), 11, 45, 1);
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(job.problems.size() == 2);
  CHECK(job.problems[0].ranks == Ranks{3});
  CHECK(job.problems[1].ranks == Ranks{1});
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == Ranks{3});
  CHECK(watch.lines().size() == 2);
}

TEST_CASE("groups: ranks that wait for each other are told to do so") {
  JobView job = RunningJob(1, 2);
  AddGroup(job, 5, "a", {0, 1});
  AddGroup(job, 6, "b", {0, 1});
  LetWait(RankOf(job, 0), 11, 40, 1);
  LetWait(RankOf(job, 1), 11, 35, 2);
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == Ranks{0, 1});
  CHECK(news.hang->text ==
        "ranks wait for each other in different groups for 35 s: rank 0 is in all-gather #11 of "
        "group a, rank 1 is in all-gather #11 of group b");
}

TEST_CASE("groups: a rank that goes on elsewhere is not stuck, nor is one that waits elsewhere") {
  JobView job = RunningJob(1, 4);
  AddGroup(job, 5, "stage", {2, 3});
  LetAllWaitFor(job, {2, 3}, 90);
  // A pipeline's stages: they work on, operation by operation.
  for (const int rank : {2, 3}) RankOf(job, rank).groups[1].quiet_s = 0.2;
  Watch watch;
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.is_healthy);
  CHECK(job.waiting_line == "waiting for ranks 2-3, which go on elsewhere, for 1 min 30 s");
}

TEST_CASE("groups: the slot of a group that was given up is no wait while its rank goes on") {
  JobView job = RunningJob(1, 2);
  LetStep(job, 500, 0.2);
  AddGroup(job, 5, "old", {0, 1});
  for (const int rank : {0, 1}) {
    GroupView& old = RankOf(job, rank).groups[1];
    old.called = 11;
    old.waiting_s = old.quiet_s = 900;
  }
  Watch watch;
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.waiting_line == "");
  SUBCASE("which its steps show where no other group does") {
    for (const int rank : {0, 1}) RankOf(job, rank).groups[0].quiet_s = 900;
    CHECK_FALSE(watch.LookTwice(job).hang);
  }
  SUBCASE("nor is a free slot") {
    LetStep(job, 500, 900);
    for (const int rank : {0, 1}) {
      for (GroupView& group : RankOf(job, rank).groups) group.quiet_s = 900;
      RankOf(job, rank).groups[1].key = 0;
    }
    watch.LookTwice(job);
    CHECK(ProblemOf(job, "hang").kind == "");
    CHECK(ProblemOf(job, "no_progress").kind == "no_progress");
  }
}

// Ranks 0 to 2 of a group wait for rank 3, which is on the second node.
JobView WaitingForRank3() {
  JobView job = RunningJob(2, 3);
  AddGroup(job, 5, "tensor", {0, 1, 2, 3});
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      for (GroupView& group : rank.groups) group.quiet_s = 60;
    }
  }
  for (const int rank : {0, 1, 2}) LetWait(RankOf(job, rank), 11, 40, 1);
  return job;
}

TEST_CASE("groups: a member that nobody has seen is named only where it is certain") {
  JobView job = WaitingForRank3();
  job.nodes.pop_back();
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->text ==
        "1 of the group's ranks has not come to all-gather #11 of group tensor for 40 s; ranks 0-2 "
        "wait; which they are is not known");
  CHECK(news.hang->ranks == Ranks{});
  CHECK_FALSE(news.hang->may_restart);
}

TEST_CASE("groups: a hang whose late rank was not known is told again with its name, once") {
  JobView job = WaitingForRank3();
  JobView before = job;
  before.nodes.pop_back();
  Watch watch;
  watch.LookTwice(before);
  CHECK(watch.lines().size() == 1);
  const JudgedNews news = watch.Look(job);
  REQUIRE(news.hang);
  CHECK(news.hang->is_new);
  CHECK(news.hang->ranks == Ranks{3});
  CHECK(watch.lines().size() == 2);
  CHECK_FALSE(watch.Look(job).hang->is_new);
  watch.Look(before);
  CHECK_FALSE(watch.Look(job).hang->is_new);
  CHECK(watch.lines().size() == 2);
}

TEST_CASE("groups: a wait for one unknown member is no part of a circle") {
  JobView job = RunningJob(2, 3);
  AddGroup(job, 5, "tensor", {0, 1, 2, 3});
  AddGroup(job, 6, "left", {0, 1});
  for (RankView& rank : job.nodes[0].ranks) {
    for (GroupView& group : rank.groups) group.quiet_s = 60;
  }
  // 0 waits for 1, and for the one that nobody has seen; 1 waits for 0.
  for (const int rank : {0, 2}) LetWait(RankOf(job, rank), 11, 40, 1);
  LetWait(RankOf(job, 1), 11, 40, 2);
  job.nodes.pop_back();
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == Ranks{});
  CHECK(news.hang->text ==
        "1 of the group's ranks has not come to all-gather #11 of group tensor for 40 s; ranks 0-2 "
        "wait; which they are is not known");
}

TEST_CASE("groups: a view from before the wait began says nothing of who is late") {
  JobView job = RunningJob(2, 1);
  LetAllWaitFor(job, {1}, 32);
  job.nodes[1].age_s = 9;
  Watch watch;
  CHECK_FALSE(watch.LookTwice(job).hang);
  LetAllWaitFor(job, {1}, 39);
  CHECK(watch.LookTwice(job).hang);
}

}  // namespace
}  // namespace ddprun::launcher
