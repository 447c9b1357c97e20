// The promises of progress_watch.h and straggler_watch.h, seen through the judge.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/status/job_judge.h"
#include "launcher/status/progress_watch.h"
#include "launcher/status/straggler_watch.h"
#include "tests/launcher/status/job_scene.h"

namespace ddprun::launcher {
namespace {

using Lines = std::vector<std::string>;

constexpr char kWhere[] = "; `ddprun dump` shows where ranks are";

TEST_CASE("progress: steps that stand for long are told, once, and that they go on") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 18240, 29);
  Watch watch;
  watch.Look(job);
  CHECK(job.is_healthy);
  LetStep(job, 18240, 40);
  watch.LookTwice(job);
  const std::string text =
      "no step has ended for 40 s, the last was 18,240; the longest of this round took 1.00 s";
  CHECK(ProblemOf(job, "no_progress").text == text);
  CHECK_FALSE(job.is_healthy);
  LetStep(job, 18240, 70);
  const std::optional<HangFound> found = watch.Look(job).hang;
  REQUIRE(found);
  CHECK_FALSE(found->is_new);
  CHECK_FALSE(found->may_restart);
  LetStep(job, 18241, 1);
  watch.Look(job);
  CHECK(job.is_healthy);
  CHECK(watch.lines() == Lines{text + kWhere, "the job goes on: no step had ended for 1 min 10 s"});
}

TEST_CASE("progress: of ranks that all stand, those at an earlier step than others are named") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 62, 40);
  RankOf(job, 1).step = 59;
  Watch watch;
  SUBCASE("one") {
    const std::optional<HangFound> found = watch.LookTwice(job).hang;
    const Problem problem = ProblemOf(job, "no_progress");
    CHECK(problem.text ==
          "no step has ended for 40 s, the last was 62; rank 1 (node gpu-00) is behind, at 59; the "
          "longest of this round took 1.00 s");
    CHECK(problem.ranks.empty());  // all stand
    REQUIRE(found);
    CHECK(found->ranks == std::vector<int>{1});  // whose place in the program is told next
    CHECK(found->is_new);
  }
  SUBCASE("two, and one that is less behind") {
    RankOf(job, 2).step = 59;
    RankOf(job, 3).step = 61;
    watch.LookTwice(job);
    CHECK(ProblemOf(job, "no_progress").text ==
          "no step has ended for 40 s, the last was 62; ranks 1-2 (nodes gpu-00, gpu-01) are "
          "behind, at 59; "
          "the longest of this round took 1.00 s");
  }
  SUBCASE("none") {
    RankOf(job, 1).step = 62;
    const std::optional<HangFound> found = watch.LookTwice(job).hang;
    REQUIRE(found);
    CHECK(found->ranks.empty());
  }
}

TEST_CASE("progress: what one look has seen is nothing yet") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 7, 60);  // all were suspended
  Watch watch;
  watch.Look(job);
  CHECK(job.is_healthy);
  LetStep(job, 8, 60);
  watch.Look(job);
  CHECK(job.is_healthy);
  LetStep(job, 9, 1);
  watch.Look(job);
  CHECK(watch.lines().empty());
}

TEST_CASE("progress: a collective that hangs explains it, also in the looks before that is sure") {
  JobView job = RunningJob(2, 2);
  Watch watch;
  // The step is older than the wait by what was computed since.
  for (const double waiting_s : {20.0, 28.0, 29.0, 30.5}) {
    LetStep(job, 7, waiting_s + 1.5);
    LetAllWaitFor(job, {2}, waiting_s);
    watch.LookTwice(job);
    CHECK(ProblemOf(job, "no_progress").kind == "");
  }
  CHECK(ProblemOf(job, "hang").ranks == std::vector<int>{2});
  CHECK(watch.lines().size() == 1);
}

TEST_CASE("progress: what excuses steps that stand") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 7, 100);
  Watch watch;
  watch.LookTwice(job);
  REQUIRE(ProblemOf(job, "no_progress").kind == "no_progress");
  SUBCASE("long steps before") { RankOf(job, 0).longest_step_s = 21; }
  SUBCASE("one that evaluates") { RankOf(job, 3).phase = ProgramPhase::kEvaluation; }
  SUBCASE("one that writes a checkpoint") { RankOf(job, 3).phase = ProgramPhase::kCheckpoint; }
  SUBCASE("one that starts") { RankOf(job, 3).phase = ProgramPhase::kStart; }
  SUBCASE("one whose node is silent") { NodeOf(job, 3).age_s = 11; }
  SUBCASE("no phase known") {
    for (int rank = 0; rank < 4; ++rank) RankOf(job, rank).phase = ProgramPhase::kUnknown;
  }
  SUBCASE("all have ended") {
    for (int rank = 0; rank < 4; ++rank) RankOf(job, rank).state = "ended";
  }
  watch.Look(job);
  CHECK(ProblemOf(job, "no_progress").kind == "");
  LetStep(job, 7, 100);
  Watch off({.hang_timeout = Duration::zero()});
  off.LookTwice(job);
  CHECK(ProblemOf(job, "no_progress").kind == "");
}

TEST_CASE("progress: ranks that stand while the others go on are named") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 7, 1);
  RankOf(job, 3).step_age_s = 40;
  Watch watch;
  SUBCASE("one") {
    watch.LookTwice(job);
    const Problem problem = ProblemOf(job, "no_progress");
    CHECK(problem.text ==
          "rank 3 (node gpu-01) has ended no step for 40 s, the last was 7; the longest of this "
          "round took 1.00 s; the other ranks go on");
    CHECK(problem.ranks == std::vector<int>{3});
    CHECK_FALSE(job.is_healthy);
    RankOf(job, 3).step_age_s = 1;
    watch.Look(job);
    CHECK(job.is_healthy);
    CHECK(watch.lines() == Lines{problem.text + kWhere, "rank 3 (node gpu-01) goes on after 40 s"});
  }
  SUBCASE("one that waits for others is not") {
    LetWait(RankOf(job, 3), 101, 20);
    watch.LookTwice(job);
    CHECK(job.is_healthy);
  }
  SUBCASE("its own longest step counts") {
    RankOf(job, 3).longest_step_s = 9;
    watch.LookTwice(job);
    CHECK(job.is_healthy);
  }
}

TEST_CASE("progress: a rank that a signal has stopped is a problem, with and without steps") {
  JobView job = RunningJob(2, 2);
  RankView& rank = RankOf(job, 1);
  rank.idle_s = 500;  // it slept before
  Watch watch;
  watch.Look(job);
  rank.wait = "do_signal_stop";
  watch.Look(job);
  watch.Look(job, 29);
  CHECK(job.is_healthy);
  constexpr char kText[] = "rank 1 (node gpu-00) is stopped by a signal for 42 s";
  SUBCASE("without") {
    watch.Look(job, 13);
    const Problem problem = ProblemOf(job, "no_progress");
    CHECK(problem.text == kText);
    CHECK(problem.ranks == std::vector<int>{1});
    CHECK(problem.since_s == doctest::Approx(42));
    CHECK_FALSE(job.is_healthy);
    rank.wait.clear();
    watch.Look(job);
    CHECK(watch.lines() ==
          Lines{std::string(kText) + kWhere, "rank 1 (node gpu-00) goes on after 42 s"});
    // The next stop counts anew.
    rank.wait = "do_signal_stop";
    watch.Look(job);
    watch.Look(job, 29);
    CHECK(job.is_healthy);
  }
  SUBCASE("alone") {
    LetStep(job, 7, 1);
    RankOf(job, 1).step_age_s = 43;
    watch.Look(job, 13);
    CHECK(ProblemOf(job, "no_progress").text == kText);
  }
  SUBCASE("why all stand") {
    LetStep(job, 7, 41);
    watch.Look(job, 12);
    watch.Look(job);
    const Problem problem = ProblemOf(job, "no_progress");
    CHECK(problem.text ==
          "no step has ended for 41 s, the last was 7; the longest of this round took 1.00 s; "
          "rank 1 (node gpu-00) is stopped by a signal");
    CHECK(problem.ranks.empty());
  }
  SUBCASE("a collective that hangs for it says so") {
    LetAllWaitFor(job, {1}, 40);
    watch.LookTwice(job);
    CHECK(ProblemOf(job, "hang").ranks == std::vector<int>{1});
    CHECK(ProblemOf(job, "no_progress").kind == "");
  }
}

TEST_CASE("progress: what was told stands until the hang that explains it does") {
  JobView job = RunningJob(2, 2);
  Watch watch;
  LetStep(job, 7, 40);
  watch.LookTwice(job);
  LetAllWaitFor(job, {1}, 41);
  watch.Look(job);
  CHECK(ProblemOf(job, "no_progress").kind == "no_progress");
  CHECK(ProblemOf(job, "hang").kind == "");
  watch.Look(job, 1.5);
  CHECK(ProblemOf(job, "no_progress").kind == "");
  CHECK(ProblemOf(job, "hang").kind == "hang");
}

TEST_CASE("progress: what a hang has explained meanwhile counts when steps go on") {
  JobView job = RunningJob(2, 2);
  Watch watch;
  LetStep(job, 7, 40);
  watch.LookTwice(job);
  LetStep(job, 7, 80);
  LetAllWaitFor(job, {1}, 75);
  watch.LookTwice(job);
  JobView on = RunningJob(2, 2);
  LetStep(on, 8, 1);
  watch.Look(on);
  CHECK(watch.lines().back() == "the job goes on: no step had ended for 1 min 20 s");
}

TEST_CASE("progress: a rank that has ended does not count") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 7, 100);
  RankOf(job, 1).state = "ended";
  RankOf(job, 1).step_age_s = 1;
  Watch watch;
  watch.LookTwice(job);
  CHECK_FALSE(job.is_healthy);
}

TEST_CASE("progress: a hang that explains it is told instead") {
  JobView job = RunningJob(2, 2);
  LetStep(job, 7, 101);
  LetAllWaitFor(job, {1}, 100);
  Watch watch;
  watch.Look(job);
  watch.Look(job, 1.5);
  CHECK(ProblemOf(job, "hang").kind == "hang");
  CHECK(ProblemOf(job, "no_progress").kind == "");
}

TEST_CASE("idle: ranks that use no CPU are a fact, and no fault") {
  JobView job = RunningJob(1, 4);
  for (RankView& rank : job.nodes[0].ranks) {
    rank.cpu = 0;
    rank.idle_s = 42 + rank.rank;
    rank.wait = rank.rank == 2 ? "hrtimer_nanosleep" : "futex_wait_queue";
  }
  Watch watch;
  watch.Look(job);
  CHECK(job.waiting_line ==
        "no rank has used CPU time for 42 s; they wait in futex_wait_queue (3), hrtimer_nanosleep "
        "(1)");
  CHECK(job.is_healthy);
  CHECK(watch.lines().empty());
  SUBCASE("one that does") { RankOf(job, 1).idle_s = 29; }
  SUBCASE("one of which it is not known") { RankOf(job, 1).idle_s.reset(); }
  SUBCASE("one that steps") { RankOf(job, 1).step = 7; }
  SUBCASE("none runs") {
    for (RankView& rank : job.nodes[0].ranks) rank.state = "ended";
  }
  watch.Look(job);
  CHECK(job.waiting_line == "");
}

// Looks at a job that makes a step a second, rank 5 slow if so wished.
class Training {
 public:
  Training() : job_(RunningJob(2, 4)) {}
  void Go(int looks, bool is_slow, double self_s = 0.31) {
    for (int i = 0; i < looks; ++i) {
      LetStep(job_, ++step_, 0.1);
      for (int rank = 0; rank < 8; ++rank) {
        RankOf(job_, rank).step_s = 0.35;
        RankOf(job_, rank).self_s = 0.21;
      }
      for (const int rank : slow_) {
        if (is_slow) RankOf(job_, rank).self_s = self_s;
      }
      watch_.Look(job_);
    }
  }
  std::string text() const { return ProblemOf(job_, "straggler").text; }
  Watch& watch() { return watch_; }
  JobView& job() { return job_; }
  void Slow(std::vector<int> ranks) { slow_ = std::move(ranks); }

 private:
  JobView job_;
  Watch watch_;
  int64_t step_ = 0;
  std::vector<int> slow_{5};
};

TEST_CASE("straggler: a rank that is slow for ten seconds is named, with what the job would gain") {
  Training training;
  training.Go(10, true);
  CHECK(training.text() == "");
  training.Go(1, true);
  const std::string text =
      "rank 5 (node gpu-01) is slow: it takes 310 ms a step by itself, the others 210 ms; they "
      "wait for it";
  CHECK(training.text() == text);
  CHECK(training.job().is_healthy);
  training.Go(50, true);
  CHECK(training.watch().lines() == Lines{text});
  SUBCASE("and for a minute after") {
    training.Go(59, false);
    CHECK(training.text() == text);
    training.Go(1, false);
    CHECK(training.text() == "");
    CHECK(training.watch().lines() == Lines{text, "rank 5 (node gpu-01) is no longer slow"});
  }
  SUBCASE("but not into the next round") {
    training.job().round = 2;
    training.Go(1, true);
    CHECK(training.text() == "");
  }
}

TEST_CASE("straggler: now and then, a little, or without a new step is not slow") {
  Training training;
  SUBCASE("now and then") {
    for (int i = 0; i < 20; ++i) {
      training.Go(9, true);
      training.Go(1, false);
    }
  }
  SUBCASE("less than a tenth of a step") { training.Go(60, true, 0.24); }
  SUBCASE("the same step") {
    training.Go(1, true);
    for (int i = 0; i < 60; ++i) training.watch().Look(training.job());
  }
  SUBCASE("nonsense") { training.Go(60, true, -1e300); }
  SUBCASE("endless") { training.Go(60, true, 1 / 0.0000000000001 * 1e300 * 1e300); }
  CHECK(training.text() == "");
  CHECK(training.watch().lines().empty());
}

TEST_CASE("straggler: several, and a whole node") {
  Training training;
  training.Slow({2, 5});
  training.Go(12, true);
  CHECK(training.text() ==
        "ranks 2, 5 (nodes gpu-00, gpu-01) are slow: they take up to 310 ms a step by themselves, "
        "the others 210 ms; the others wait for them");
  Training node;
  node.Slow({4, 5, 6, 7});
  node.Go(12, true);
  CHECK(node.text() ==
        "node gpu-01 is slow: its ranks 4-7 take up to 310 ms a step by themselves, the others "
        "210 ms; the others wait for them");
  CHECK(ProblemOf(node.job(), "straggler").node == "gpu-01");
}

TEST_CASE("straggler: one that finds no core free says so") {
  Training training;
  const auto wait = [&](double share) {
    for (NodeView& node : training.job().nodes) {
      for (RankView& rank : node.ranks) rank.core_wait_share = share;
    }
  };
  wait(0.09);
  training.Go(12, true);
  CHECK(training.text().ends_with("; they wait for it"));
  wait(0.346);
  training.Go(1, true);
  CHECK(
      training.text().ends_with("; they wait for it. For 35 % of the time no core is free for it"));
  training.Slow({2, 5});
  wait(-1e300);
  training.Go(12, true);
  CHECK(training.text().ends_with("; the others wait for them"));
  wait(0.5);
  training.Go(1, true);
  CHECK(training.text().ends_with(". For 50 % of the time no core is free for the slowest"));
}

TEST_CASE("straggler: one more is told when a minute has passed") {
  Training training;
  training.Go(12, true);
  training.Slow({2, 5});
  training.Go(40, true);
  CHECK(training.text().substr(0, 10) == "ranks 2, 5");
  CHECK(training.watch().lines().size() == 1);
  training.Go(30, true);
  CHECK(training.watch().lines().size() == 2);
}

}  // namespace
}  // namespace ddprun::launcher
