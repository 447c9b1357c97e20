#include "launcher/status/time_ledger.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "tests/launcher/status/job_scene.h"

namespace ddprun::launcher {
namespace {

// Feeds a ledger once a second.
class Feed {
 public:
  // The job stays as it is for so long.
  void Pass(JobView& job, int seconds) {
    for (int i = 0; i < seconds; ++i) ledger_.Add(At(now_s_ += 1), job);
  }
  const TimeLedger& ledger() const { return ledger_; }
  double now_s() const { return now_s_; }
  TimeLedger& mutable_ledger() { return ledger_; }

 private:
  TimeLedger ledger_;
  double now_s_ = 0;
};

JobView Forming(uint64_t round) {
  JobView job{.state = "forming", .round = round};
  return job;
}

// Every rank has spent so much of the round in evaluation and checkpoints.
void LetSpend(JobView& job, double evaluation_s, double checkpoint_s) {
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      rank.evaluation_s = evaluation_s;
      rank.checkpoint_s = checkpoint_s;
    }
  }
}

void LetPhase(JobView& job, ProgramPhase phase) {
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) rank.phase = phase;
  }
}

TEST_CASE("ledger: every second belongs to what the job was seen to do") {
  Feed feed;
  JobView forming = Forming(0);
  forming.up_s = 2;
  feed.Pass(forming, 1);
  JobView job = RunningJob(1, 2);
  LetPhase(job, ProgramPhase::kStart);
  feed.Pass(job, 3);
  CHECK(feed.ledger().start_s() == doctest::Approx(5));
  LetStep(job, 1, 0);
  feed.Pass(job, 101);
  CHECK(feed.ledger().start_s() == doctest::Approx(6));
  CHECK(feed.ledger().steps_s() == doctest::Approx(100));
  LetSpend(job, 0, 0.5);
  feed.Pass(job, 1);
  for (int i = 1; i <= 19; ++i) {
    LetSpend(job, 0, 0.5 + i);
    feed.Pass(job, 1);
  }
  LetSpend(job, 11, 19.5);
  feed.Pass(job, 71);
  CHECK(feed.ledger().checkpoint_s() == doctest::Approx(19.5));
  CHECK(feed.ledger().evaluation_s() == doctest::Approx(11));
  CHECK(feed.ledger().total_s() == doctest::Approx(197));
  REQUIRE(feed.ledger().effective_share());
  CHECK(*feed.ledger().effective_share() == doctest::Approx(160.5 / 197));
  CHECK(feed.ledger().ClosingLine() ==
        "81.4 % of 3 min 17 s spent in steps; start 6 s, checkpoints 19 s, evaluation 11 s");
}

TEST_CASE("ledger: a restart is from the failure to the first step after it") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 101);
  job.state = "stopping";
  job.first_fault = FaultView{.rank = 1, .text = "exit code 1", .round = 1, .age_s = 0.25};
  feed.Pass(job, 5);
  CHECK(feed.ledger().steps_s() == doctest::Approx(100.75));
  CHECK(feed.ledger().stop_s() == doctest::Approx(4.25));
  JobView forming = Forming(1);
  feed.Pass(forming, 2);
  CHECK(feed.ledger().stop_s() == 0);
  JobView next = RunningJob(1, 2);
  next.round = 2;
  feed.Pass(next, 10);
  LetPhase(next, ProgramPhase::kStart);
  feed.Pass(next, 10);
  LetStep(next, 1, 0);
  feed.Pass(next, 1);
  CHECK(feed.ledger().restart_s() == doctest::Approx(27.25));
  CHECK(feed.ledger().start_s() == 0);
  feed.Pass(next, 72);
  CHECK(feed.ledger().ClosingLine() == "86.3 % of 3 min 20 s spent in steps; restarts 27 s");
}

TEST_CASE("ledger: the end of a round is for the next one, also where nobody saw that form") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 61);
  job.state = "stopping";
  feed.Pass(job, 6);
  JobView next = RunningJob(1, 2);
  next.round = 2;
  LetStep(next, 1, 0);
  feed.Pass(next, 6);
  CHECK(feed.ledger().stop_s() == 0);
  CHECK(feed.ledger().restart_s() == doctest::Approx(6));
  CHECK(feed.ledger().steps_s() == doctest::Approx(66));
}

TEST_CASE("ledger: a round that follows unseen is a restart, the end of the last one is not") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 61);
  JobView next = RunningJob(1, 2);
  next.round = 3;
  LetPhase(next, ProgramPhase::kStart);
  feed.Pass(next, 10);
  LetStep(next, 1, 0);
  feed.Pass(next, 10);
  next.state = "stopping";
  feed.Pass(next, 4);
  next.state = "ended";
  feed.Pass(next, 100);
  CHECK(feed.ledger().restart_s() == doctest::Approx(10));
  CHECK(feed.ledger().stop_s() == doctest::Approx(4));
  CHECK(feed.ledger().total_s() == doctest::Approx(85));
}

TEST_CASE("ledger: a program that reports nothing runs, and its first word tells of its start") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  job.up_s = 1;  // at the first look
  feed.Pass(job, 120);
  CHECK_FALSE(feed.ledger().effective_share());
  CHECK(feed.ledger().ClosingLine() == "100.0 % of 2 min spent running");
  JobView forming = Forming(1);
  feed.Pass(forming, 10);
  job.round = 2;
  feed.Pass(job, 30);
  CHECK(feed.ledger().ClosingLine() == "93.7 % of 2 min 40 s spent running; restarts 10 s");
  Feed other;
  JobView late = RunningJob(1, 2);
  late.up_s = 1;
  other.Pass(late, 60);
  LetStep(late, 1, 0);
  other.Pass(late, 11);
  CHECK(other.ledger().start_s() == doctest::Approx(61));
  CHECK(other.ledger().steps_s() == doctest::Approx(10));
}

TEST_CASE("ledger: a stall counts from its beginning") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 101);
  job.problems = {{.kind = "hang", .since_s = 31}};
  feed.Pass(job, 10);
  CHECK(feed.ledger().stall_s() == doctest::Approx(40));
  CHECK(feed.ledger().steps_s() == doctest::Approx(70));
  job.problems = {{.kind = "straggler", .since_s = 31}};
  feed.Pass(job, 10);
  CHECK(feed.ledger().stall_s() == doctest::Approx(41));
}

TEST_CASE("ledger: rare views are split by what they tell of when it began") {
  TimeLedger ledger;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  ledger.Add(At(0), job);
  LetSpend(job, 0, 12);
  ledger.Add(At(60), job);
  CHECK(ledger.steps_s() == doctest::Approx(48));
  CHECK(ledger.checkpoint_s() == doctest::Approx(12));
}

TEST_CASE("ledger: nothing is said of a job below a minute, or of none") {
  Feed feed;
  CHECK(feed.ledger().ClosingLine() == "");
  CHECK(feed.ledger().total_s() == 0);
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 60);
  CHECK(feed.ledger().ClosingLine() == "");
  feed.Pass(job, 1);
  CHECK(feed.ledger().ClosingLine() == "100.0 % of 1 min spent in steps");
}

TEST_CASE("ledger: times that are none are not added up") {
  Feed feed;
  JobView job = Forming(0);
  job.up_s = -5;
  feed.Pass(job, 1);
  JobView running = RunningJob(1, 2);
  LetStep(running, 1, 0);
  feed.Pass(running, 1);
  LetSpend(running, -1, 1e300);
  feed.Pass(running, 1);
  LetSpend(running, std::numeric_limits<double>::quiet_NaN(), -1);
  feed.Pass(running, 1);
  running.problems = {{.kind = "hang", .since_s = 1e300}};
  feed.Pass(running, 1);
  CHECK(feed.ledger().total_s() == doctest::Approx(4));
}

TEST_CASE("ledger: evaluations that are shorter than the time between two looks count in full") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 1);
  // One rank evaluates a fifth of each second, and its node is not heard of in each third look.
  for (int i = 1; i <= 99; ++i) {
    RankOf(job, 1).evaluation_s = i % 3 == 0 ? 0 : 0.2 * i;
    feed.Pass(job, 1);
  }
  RankOf(job, 1).evaluation_s = 20;
  feed.Pass(job, 1);
  CHECK(feed.ledger().evaluation_s() == doctest::Approx(20));
  CHECK(*feed.ledger().effective_share() == doctest::Approx(0.8));
}

TEST_CASE("ledger: an evaluation before the first step is part of the start, in each round") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetPhase(job, ProgramPhase::kEvaluation);
  LetSpend(job, 5, 0);
  feed.Pass(job, 6);
  LetStep(job, 1, 0);
  feed.Pass(job, 11);
  CHECK(feed.ledger().evaluation_s() == 0);
  CHECK(feed.ledger().steps_s() == doctest::Approx(10));
  // The next round's workers count from 0.
  JobView next = RunningJob(1, 2);
  next.round = 2;
  LetStep(next, 1, 0);
  feed.Pass(next, 2);
  LetSpend(next, 3, 1);
  feed.Pass(next, 5);
  CHECK(feed.ledger().evaluation_s() == doctest::Approx(3));
  CHECK(feed.ledger().checkpoint_s() == doctest::Approx(1));
}

TEST_CASE("ledger: a checkpoint of one rank and an evaluation of others are the same time once") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 31);
  RankOf(job, 0).checkpoint_s = 20;
  RankOf(job, 1).evaluation_s = 20;
  feed.Pass(job, 1);
  CHECK(feed.ledger().checkpoint_s() == doctest::Approx(20));
  CHECK(feed.ledger().evaluation_s() == 0);
  CHECK(feed.ledger().steps_s() == doctest::Approx(11));
}

TEST_CASE("ledger: a hang within an evaluation takes its time from that") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  feed.Pass(job, 41);
  for (int i = 1; i <= 30; ++i) {
    LetSpend(job, i, 0);
    feed.Pass(job, 1);
  }
  job.problems = {{.kind = "hang", .since_s = 31}};
  feed.Pass(job, 1);
  CHECK(feed.ledger().stall_s() == doctest::Approx(31));
  CHECK(feed.ledger().evaluation_s() == doctest::Approx(0));
  CHECK(feed.ledger().steps_s() == doctest::Approx(40));
}

TEST_CASE("ledger: a start that no look has seen, or one long ago, is known from the ranks") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  job.up_s = 9;
  RankOf(job, 0).up_s = 8;
  RankOf(job, 0).first_step_s = 2;
  SUBCASE("at the first look") {
    feed.Pass(job, 1);
    CHECK(feed.ledger().start_s() == doctest::Approx(3));
    CHECK(feed.ledger().steps_s() == doctest::Approx(6));
  }
  SUBCASE("between two") {
    TimeLedger ledger;
    JobView forming = Forming(0);
    ledger.Add(At(0), forming);
    ledger.Add(At(10), job);
    CHECK(ledger.start_s() == doctest::Approx(4));
    CHECK(ledger.steps_s() == doctest::Approx(6));
  }
}

TEST_CASE("ledger: a round that no failure has ended is over since its workers were stopped") {
  TimeLedger ledger;
  JobView job = RunningJob(1, 2);
  job.up_s = 1;
  ledger.Add(At(0), job);
  ledger.Add(At(31), job);
  JobView forming = Forming(1);
  forming.round_over_s = 3;
  ledger.Add(At(41), forming);
  CHECK(ledger.restart_s() == doctest::Approx(3));
  ledger.Add(At(66), forming);
  CHECK(ledger.ClosingLine() == "58.2 % of 1 min 7 s spent running; restarts 28 s");
  // The fault of a round before has nothing to do with how this one ended.
  job.round = 2;
  ledger.Add(At(67), job);
  forming.round = 2;
  forming.first_fault = FaultView{.rank = 1, .text = "exit code 1", .round = 1, .age_s = 500};
  forming.round_over_s = 4;
  ledger.Add(At(77), forming);
  CHECK(ledger.restart_s() == doctest::Approx(33));
}

TEST_CASE("ledger: a restart that no look has seen has the length that the round tells") {
  TimeLedger ledger;
  JobView job = RunningJob(1, 2);
  LetStep(job, 1, 0);
  ledger.Add(At(0), job);
  JobView next = RunningJob(1, 2);
  next.round = 2;
  next.rounds = {{.round = 2, .detect_s = 0.5, .stop_s = 1, .rendezvous_s = 2, .age_s = 3}};
  LetPhase(next, ProgramPhase::kStart);
  ledger.Add(At(10), next);
  CHECK(ledger.restart_s() == doctest::Approx(6.5));
  CHECK(ledger.steps_s() == doctest::Approx(3.5));
}

TEST_CASE("ledger: what was before the first look is running from the round's beginning on") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  job.up_s = 100;
  job.rounds = {{.round = 1, .age_s = 10}};
  feed.Pass(job, 1);
  CHECK(feed.ledger().ClosingLine() == "10.0 % of 1 min 40 s spent running; start 1 min 30 s");
}

TEST_CASE("ledger: nothing is said of a job that was first seen when its first round was over") {
  Feed feed;
  JobView job = Forming(1);
  SUBCASE("and it formed again") {}
  SUBCASE("and stopped") { job.state = "stopping"; }
  job.up_s = 68;
  feed.Pass(job, 10);
  CHECK(!feed.ledger().effective_share());
  CHECK(feed.ledger().ClosingLine() == "");
}

TEST_CASE("ledger: nothing is said of a job whose beginning was not seen") {
  Feed feed;
  JobView job = RunningJob(1, 2);
  job.round = 3;
  LetStep(job, 1, 0);
  feed.Pass(job, 100);
  CHECK(!feed.ledger().effective_share());
  CHECK(feed.ledger().ClosingLine() == "");
}

}  // namespace
}  // namespace ddprun::launcher
