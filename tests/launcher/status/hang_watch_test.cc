#include "launcher/status/hang_watch.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/status/job_judge.h"
#include "tests/launcher/status/job_scene.h"

namespace ddprun::launcher {
namespace {

using Lines = std::vector<std::string>;
using Ranks = std::vector<int>;

std::string HangOf(const JobView& job) { return ProblemOf(job, "hang").text; }

TEST_CASE("hang: a rank that has not come for the timeout is named, with what it does instead") {
  JobView job = RunningJob(4, 8);
  LetAllWaitFor(job, {5}, 42);
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) LetWait(rank, 88123, 42);
  }
  WorldOf(job, 5).called = WorldOf(job, 5).done = 88122;
  WorldOf(job, 5).waiting_s = 0;
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  const std::string text =
      "rank 5 (node gpu-00) has not come to all-reduce #88,123 for 42 s; ranks 0-4, 6-31 wait for "
      "it; it computes (1.0 cores)";
  CHECK(HangOf(job) == text);
  CHECK(ProblemOf(job, "hang").ranks == Ranks{5});
  CHECK(ProblemOf(job, "hang").since_s == 42);
  CHECK_FALSE(job.is_healthy);
  REQUIRE(news.hang);
  CHECK(*news.hang == HangFound{.is_new = true, .ranks = {5}, .text = text});
  CHECK(watch.lines() == Lines{text});
  CHECK(job.waiting_line == "waiting in all-reduce #88,123 for rank 5 (node gpu-00) for 42 s");
}

TEST_CASE("hang: what the late rank does is told as far as it is known") {
  const auto told = [](auto&& change) {
    JobView job = RunningJob(2, 2);
    LetAllWaitFor(job, {3}, 42);
    RankOf(job, 3).cpu = 0.001;
    change(job, RankOf(job, 3));
    Watch watch;
    watch.LookTwice(job);
    const std::string text = HangOf(job);
    const std::string start =
        "rank 3 (node gpu-01) has not come to all-reduce #101 for 42 s; ranks 0-2 wait for it";
    CHECK(text.substr(0, start.size()) == start);
    return text.substr(std::min(text.size(), start.size()));
  };
  CHECK(told([](JobView&, RankView& rank) { rank.wait = "hrtimer_nanosleep"; }) ==
        "; it sleeps in hrtimer_nanosleep");
  CHECK(told([](JobView&, RankView& rank) { rank.wait = "futex_wait_queue"; }) ==
        "; it waits in futex_wait_queue");
  CHECK(told([](JobView&, RankView& rank) { rank.wait = "do_signal_stop"; }) == "; it is stopped");
  CHECK(told([](JobView&, RankView& rank) { rank.idle_s = 41; }) ==
        "; it has used no CPU time for 41 s");
  CHECK(told([](JobView&, RankView& rank) { rank.idle_s.reset(); }) == "");
  CHECK(told([](JobView& job, RankView&) { NodeOf(job, 3).age_s = 20; }) == "; its node is silent");
  CHECK(told([](JobView&, RankView& rank) {
          rank.state = "ended";
          rank.end = "exit code 0";
        }) == "; it has ended (exit code 0)");
}

TEST_CASE("hang: late ranks are put together by what they do") {
  JobView job = RunningJob(2, 4);
  LetAllWaitFor(job, {1, 2, 3, 6}, 31);
  for (const int rank : {1, 3}) {
    RankOf(job, rank).cpu = 0;
    RankOf(job, rank).wait = "hrtimer_nanosleep";
  }
  RankOf(job, 6).cpu = 0;
  RankOf(job, 6).wait = "pipe_read";
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  CHECK(HangOf(job) ==
        "ranks 1-3, 6 (nodes gpu-00, gpu-01) have not come to all-reduce #101 for 31 s; ranks 0, "
        "4-5, 7 wait for them; ranks 1, 3 sleep in hrtimer_nanosleep, rank 2 computes (1.0 "
        "cores), rank 6 waits in pipe_read");
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == Ranks{1, 2, 3, 6});
}

TEST_CASE("hang: all ranks in an operation that does not end") {
  JobView job = RunningJob(2, 2);
  LetAllWaitFor(job, {}, 42);
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  CHECK(HangOf(job) == "all ranks are in all-reduce #101 for 42 s and it does not end");
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == Ranks{});
  CHECK(job.waiting_line == "waiting for all-reduce #101 to end, for 42 s");

  SUBCASE("and has ended for one of them") {
    WorldOf(job, 0).done = 101;
    watch.LookTwice(job);
    CHECK(HangOf(job) ==
          "ranks 1-3 (nodes gpu-00, gpu-01) are in all-reduce #101 for 42 s, which has ended for "
          "the others; they compute");
  }
  SUBCASE("and one has ended within") {
    RankOf(job, 2).state = "ended";
    RankOf(job, 2).end = "exit code 0";
    watch.LookTwice(job);
    CHECK(HangOf(job) ==
          "rank 2 (node gpu-01) has not come to all-reduce #101 for 42 s; ranks 0-1, 3 wait for "
          "it; it has ended (exit code 0)");
  }
}

TEST_CASE("hang: a wait below the timeout is told and is none") {
  JobView job = RunningJob(2, 2);
  Watch watch;
  LetAllWaitFor(job, {1}, 1.9);
  watch.LookTwice(job);
  CHECK(job.waiting_line == "");
  LetAllWaitFor(job, {1}, 12);
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.waiting_line == "waiting in all-reduce #101 for rank 1 (node gpu-00) for 12 s");
  LetAllWaitFor(job, {1}, 29.9);
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.is_healthy);
  CHECK(watch.lines().empty());
}

TEST_CASE("hang: two looks must show the same, a second apart") {
  JobView job = RunningJob(1, 4);
  LetAllWaitFor(job, {1}, 42);
  Watch watch;
  CHECK_FALSE(watch.Look(job).hang);
  CHECK(job.is_healthy);
  CHECK_FALSE(watch.Look(job, 0.9).hang);
  SUBCASE("the same") { CHECK(watch.Look(job, 0.1).hang); }
  SUBCASE("another operation") {
    for (const int rank : {0, 2, 3}) LetWait(RankOf(job, rank), 102, 42);
    WorldOf(job, 1).called = WorldOf(job, 1).done = 101;
    CHECK_FALSE(watch.Look(job, 0.1).hang);
    CHECK_FALSE(watch.Look(job, 0.9).hang);
    CHECK(watch.Look(job, 0.1).hang);
  }
  SUBCASE("another late rank") {
    LetAllWaitFor(job, {2}, 42);
    CHECK_FALSE(watch.Look(job, 0.1).hang);
  }
  SUBCASE("another count of a waiting rank, which calls one operation more") {
    ++WorldOf(job, 0).called;
    CHECK_FALSE(watch.Look(job, 0.1).hang);
    CHECK(watch.Look(job, 1).hang);
  }
  SUBCASE("counts that went backwards, of a worker that was started again") {
    WorldOf(job, 1).called = WorldOf(job, 1).done = 0;
    CHECK_FALSE(watch.Look(job, 0.1).hang);
    CHECK(watch.Look(job, 1).hang);
  }
}

TEST_CASE("hang: it is told once, and once that it is over") {
  JobView job = RunningJob(1, 4);
  Watch watch;
  LetAllWaitFor(job, {1}, 42);
  CHECK(watch.LookTwice(job).hang->is_new);
  for (const double waiting_s : {43.0, 44.0, 72.0}) {
    LetAllWaitFor(job, {1}, waiting_s);
    const JudgedNews news = watch.Look(job);
    REQUIRE(news.hang);
    CHECK_FALSE(news.hang->is_new);
  }
  CHECK(watch.lines().size() == 1);
  SUBCASE("it goes on") {
    job = RunningJob(1, 4);
    CHECK_FALSE(watch.Look(job).hang);
    CHECK(job.is_healthy);
    CHECK(watch.lines().back() == "the hang in all-reduce #101 is over after 1 min 12 s");
    LetAllWaitFor(job, {1}, 42);
    CHECK(watch.LookTwice(job).hang->is_new);
    CHECK(watch.lines().size() == 3);
  }
  SUBCASE("its round ends") {
    job.state = "stopping";
    CHECK_FALSE(watch.Look(job).hang);
    CHECK(watch.lines().back() ==
          "the hang in all-reduce #101 has ended with its round, after 1 min 12 s");
    watch.Look(job);
    CHECK(watch.lines().size() == 2);
  }
  SUBCASE("one of two late ranks has come: it is still the same hang") {
    LetAllWaitFor(job, {1, 2}, 73);
    CHECK(watch.Look(job).hang->ranks == Ranks{1, 2});
    CHECK(watch.lines().size() == 1);
  }
}

TEST_CASE("hang: an older view of the late rank's node does not end it") {
  JobView job = RunningJob(2, 2);
  LetAllWaitFor(job, {3}, 31);
  Watch watch;
  CHECK(watch.LookTwice(job).hang);
  job.nodes[1].age_s = 9;
  CHECK(watch.Look(job).hang);
  CHECK(watch.lines().size() == 1);
}

TEST_CASE("hang: a timeout of 0 finds none") {
  JobView job = RunningJob(1, 4);
  LetAllWaitFor(job, {1}, 3000);
  Watch watch({.hang_timeout = Duration::zero()});
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.is_healthy);
  CHECK(job.waiting_line == "waiting in all-reduce #101 for rank 1 for 50 min");
  LetAllWaitFor(job, {}, 3000);
  CHECK_FALSE(watch.LookTwice(job).hang);
}

TEST_CASE("hang: none in a job that does not run") {
  for (const char* state : {"forming", "starting", "stopping", "ended"}) {
    JobView job = RunningJob(1, 4);
    LetAllWaitFor(job, {1}, 42);
    job.state = state;
    Watch watch;
    CHECK_FALSE(watch.LookTwice(job).hang);
    CHECK(job.is_healthy);
  }
}

TEST_CASE("hang: a rank that writes a checkpoint or evaluates is waited for") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 7, 300);
  LetAllWaitFor(job, {1, 2}, 300);
  RankOf(job, 1).phase = ProgramPhase::kCheckpoint;
  Watch watch;
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.is_healthy);
  CHECK(job.waiting_line ==
        "waiting for rank 1 (node gpu-00), which writes a checkpoint, for 5 min");
  RankOf(job, 1).phase = ProgramPhase::kEvaluation;
  RankOf(job, 2).phase = ProgramPhase::kEvaluation;
  CHECK_FALSE(watch.LookTwice(job).hang);
  CHECK(job.waiting_line ==
        "waiting for ranks 1-2 (nodes gpu-00, gpu-01), which evaluate, for 5 min");
  CHECK(job.is_healthy);
  SUBCASE("and not any more when it trains again") {
    for (const int rank : {1, 2}) RankOf(job, rank).phase = ProgramPhase::kTrain;
    CHECK(watch.LookTwice(job).hang);
  }
  SUBCASE("nor once it has ended") {
    for (const int rank : {1, 2}) RankOf(job, rank).state = "ended";
    CHECK(watch.LookTwice(job).hang);
  }
}

TEST_CASE("hang: none is for a restart while a rank evaluates, or where somebody is not heard of") {
  JobView job = RunningJob(2, 2);
  Watch watch;
  LetAllWaitFor(job, {1}, 42);
  const auto may_restart = [&] {
    const JudgedNews news = watch.LookTwice(job);
    REQUIRE(news.hang);
    return news.hang->may_restart;
  };
  CHECK(may_restart());
  SUBCASE("evaluation") {
    RankOf(job, 0).phase = ProgramPhase::kEvaluation;
    CHECK_FALSE(may_restart());
  }
  SUBCASE("checkpoint, of all") {
    LetAllWaitFor(job, {}, 42);
    LetStep(job, 7, 50);
    for (int rank = 0; rank < 4; ++rank) RankOf(job, rank).phase = ProgramPhase::kCheckpoint;
    CHECK_FALSE(may_restart());
  }
  SUBCASE("silent") {
    job.nodes[0].age_s = 20;
    CHECK_FALSE(may_restart());
  }
  SUBCASE("unseen") {
    job.nodes[0].ranks.pop_back();
    CHECK_FALSE(may_restart());
    CHECK(HangOf(job) ==
          "rank 1 has not come to all-reduce #101 for 42 s; ranks 0, 2-3 wait for it; its node is "
          "silent");
  }
}

TEST_CASE("hang: a rank that is stopped within an operation that all have come to is to blame") {
  JobView job = RunningJob(2, 2);
  LetAllWaitFor(job, {}, 42);
  RankOf(job, 1).wait = "do_signal_stop";
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == std::vector<int>{1});
  CHECK(news.hang->may_restart);
  CHECK(news.hang->text ==
        "all ranks are in all-reduce #101 for 42 s and it does not end; rank 1 (node gpu-00) is "
        "stopped");
  CHECK(ProblemOf(job, "hang").ranks == std::vector<int>{1});
}

TEST_CASE("hang: what PyTorch was asked must be asked again before it counts") {
  JobView job = RunningJob(2, 1);
  LetAllWaitFor(job, {1}, 42);
  const auto ask = [&](double asked_s) {
    for (const int rank : {0, 1}) WorldOf(job, rank).asked_s = asked_s;
  };
  Watch watch;
  ask(0.1);
  watch.Look(job);
  // The same answers, older.
  ask(2.1);
  CHECK_FALSE(watch.Look(job, 2).hang);
  ask(0.1);
  CHECK(watch.Look(job, 3).hang);
}

TEST_CASE(
    "hang: of ranks that PyTorch has not answered for it is not known whether they are late") {
  JobView job = RunningJob(2, 2);
  LetAllWaitFor(job, {1}, 42);
  for (const int rank : {0, 1, 2}) WorldOf(job, rank).asked_s = 0;
  RankOf(job, 3).groups.clear();
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == std::vector<int>{1});
  CHECK_FALSE(news.hang->may_restart);
  // An answer from before the wait began says nothing.
  JobView old = RunningJob(2, 1);
  LetAllWaitFor(old, {1}, 32);
  WorldOf(old, 0).asked_s = 0;
  WorldOf(old, 1).asked_s = 9;
  Watch other;
  other.Look(old);
  CHECK_FALSE(other.Look(old, 10).hang);
}

}  // namespace
}  // namespace ddprun::launcher
