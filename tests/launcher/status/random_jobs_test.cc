// A job in virtual time whose ranks are delayed at random: no delay below the timeout is ever
// called a hang, and a rank that is stuck always is, by name. And what no sane worker would tell.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "launcher/status/job_judge.h"
#include "tests/launcher/status/job_scene.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

// Seconds. A delay of more would be a hang, or might be seen as one.
constexpr double kLongestDelay = 29.5;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kSeeds = 300;  // instrumented code is several times slower
#else
constexpr uint32_t kSeeds = 10'000;
#endif
constexpr double kNever = std::numeric_limits<double>::infinity();

// Ranks that compute and come to an operation of all, over and over. The nodes are asked now and
// then, each at a time of its own.
class RandomJob {
 public:
  RandomJob(uint32_t seed, bool has_stuck) : random_(seed) {
    const int nodes = 1 + Below(3);
    job_ = RunningJob(nodes, 1 + Below(3));
    if (job_.world_size < 2) job_ = RunningJob(1, 2);
    does_report_ = Below(2) == 0;
    comes_at_.resize(static_cast<size_t>(job_.world_size));
    if (has_stuck) {
      stuck_ = Below(job_.world_size);
      stuck_number_ = 101 + static_cast<uint64_t>(Below(4));
    }
    Compute();
  }

  // Lets time pass up to `to_s`.
  void Advance(double to_s) {
    for (;;) {
      const double last_s = *std::max_element(comes_at_.begin(), comes_at_.end());
      const double ends_s = last_s + 0.05;
      if (ends_s > to_s) break;
      ++done_;
      done_at_s_ = now_s_ = ends_s;
      if (done_ % 2 == 0) {
        ++step_;
        step_at_s_ = ends_s;
      }
      Compute();
    }
    now_s_ = to_s;
  }

  // What the nodes show now; some of it is what they showed before.
  JobView& Show() {
    for (NodeView& node : job_.nodes) {
      const bool is_fresh = Below(4) != 0 || node.age_s > 2;
      if (!is_fresh) {
        node.age_s += now_s_ - shown_s_;
        continue;
      }
      node.age_s = 0;
      for (RankView& rank : node.ranks) ShowRank(rank);
    }
    shown_s_ = now_s_;
    return job_;
  }

  // Since when others wait for the stuck rank; infinite: not yet.
  double awaited_since_s() const {
    if (stuck_ < 0 || done_ + 1 != stuck_number_) return kNever;
    double first_s = kNever;
    for (size_t i = 0; i < comes_at_.size(); ++i) {
      if (static_cast<int>(i) != stuck_) first_s = std::min(first_s, comes_at_[i]);
    }
    return first_s;
  }
  int stuck() const { return stuck_; }
  double now_s() const { return now_s_; }
  int Below(int end) { return static_cast<int>(random_() % static_cast<uint32_t>(end)); }

 private:
  void Compute() {
    const bool is_slow = Below(4) == 0;
    for (size_t i = 0; i < comes_at_.size(); ++i) {
      double takes_s = 0.01 + Below(100) / 100.0;
      if (is_slow && Below(3) == 0) takes_s = kLongestDelay * Below(1000) / 1000;
      comes_at_[i] = now_s_ + takes_s;
    }
    if (stuck_ >= 0 && done_ + 1 == stuck_number_) comes_at_[static_cast<size_t>(stuck_)] = kNever;
  }

  void ShowRank(RankView& rank) {
    const double came_s = comes_at_[static_cast<size_t>(rank.rank)];
    const bool waits = came_s <= now_s_;
    GroupView& world = rank.groups[0];
    world.done = done_;
    world.called = done_ + (waits ? 1 : 0);
    world.waiting_s = waits ? now_s_ - came_s : 0;
    world.quiet_s = now_s_ - (waits ? came_s : done_at_s_);
    rank.cpu = waits ? 0.01 : 1;
    rank.idle_s = waits ? now_s_ - came_s : 0;
    if (!does_report_) return;
    rank.phase = ProgramPhase::kTrain;
    rank.step = step_;
    rank.step_age_s = now_s_ - step_at_s_;
    rank.longest_step_s = 1;
  }

  std::mt19937 random_;
  JobView job_;
  bool does_report_ = false;
  double now_s_ = 0, shown_s_ = 0;
  uint64_t done_ = 100;
  double done_at_s_ = 0;
  int64_t step_ = 50;
  double step_at_s_ = 0;
  std::vector<double> comes_at_;
  int stuck_ = -1;
  uint64_t stuck_number_ = 0;
};

// Steps that stand are none: each of them has two operations.
bool IsHang(const JudgedNews& news) { return news.hang && news.hang->may_restart; }

TEST_CASE("random jobs: delays below the timeout are no hang") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    RandomJob job(seed, false);
    JobJudge judge;
    double until_s = 0;
    while (until_s < 45) {
      until_s += 0.5 + job.Below(1000) / 1000.0;
      job.Advance(until_s);
      const JudgedNews news = judge.Look(At(until_s), job.Show());
      if (!IsHang(news)) continue;
      FAIL("seed ", seed, " at ", until_s, " s: ", news.hang->text);
    }
  }
}

TEST_CASE("random jobs: a stuck rank is found in time and named") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    RandomJob job(seed, true);
    JobJudge judge;
    double until_s = 0;
    for (;;) {
      until_s += 0.5 + job.Below(500) / 1000.0;
      job.Advance(until_s);
      const double awaited_s = until_s - job.awaited_since_s();
      const JudgedNews news = judge.Look(At(until_s), job.Show());
      if (IsHang(news) && (awaited_s < 30 || news.hang->ranks != std::vector{job.stuck()})) {
        FAIL("seed ", seed, ", rank ", job.stuck(), " at ", awaited_s, " s: ", news.hang->text);
      }
      if (!IsHang(news) && awaited_s > 33) FAIL("seed ", seed, ": not found at ", awaited_s, " s");
      if (IsHang(news) || awaited_s > 33) break;
    }
  }
}

// What a page may hold that somebody else has written into.
double Odd(std::mt19937& random) {
  constexpr double kOdd[] = {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(),
                             -1,
                             0,
                             -0.0,
                             42,
                             1e300,
                             9223372036854775808.0,
                             5e-324};
  return kOdd[random() % std::size(kOdd)];
}

uint64_t OddCount(std::mt19937& random) {
  constexpr uint64_t kOdd[] = {0, 1, 100, 101, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 1};
  return kOdd[random() % std::size(kOdd)];
}

int OddInt(std::mt19937& random) {
  constexpr int kOdd[] = {std::numeric_limits<int>::min(), -1, 0, 1, 3, 1 << 20, 1 << 30,
                          std::numeric_limits<int>::max()};
  return kOdd[random() % std::size(kOdd)];
}

void Spoil(std::mt19937& random, JobView& job) {
  const auto seldom = [&] { return random() % 50 == 0; };
  job.up_s = Odd(random);
  if (seldom()) job.world_size = OddInt(random);
  if (seldom()) job.node_count = OddInt(random);
  if (seldom()) job.max_nodes = OddInt(random);
  if (seldom()) job.first_fault = FaultView{.rank = OddInt(random), .age_s = Odd(random)};
  for (NodeView& node : job.nodes) {
    if (random() % 8 == 0) node.age_s = Odd(random);
    for (RankView& rank : node.ranks) {
      if (seldom()) rank.rank = OddInt(random);
      rank.phase = static_cast<ProgramPhase>(random() % 5);
      rank.phase_s = Odd(random);
      rank.cpu = Odd(random);
      rank.core_wait_share = Odd(random);
      rank.idle_s = Odd(random);
      rank.up_s = Odd(random);
      rank.step = static_cast<int64_t>(OddCount(random));
      rank.step_age_s = Odd(random);
      rank.step_s = Odd(random);
      rank.self_s = Odd(random);
      rank.longest_step_s = Odd(random);
      rank.samples_per_s = Odd(random);
      rank.exposed_share = Odd(random);
      for (GroupView& group : rank.groups) {
        group.called = OddCount(random);
        group.done = OddCount(random);
        group.waiting_s = Odd(random);
        group.quiet_s = Odd(random);
        if (seldom()) group.size = OddInt(random);
        if (seldom()) group.key = OddCount(random);
      }
    }
  }
}

TEST_CASE("hostile: whatever a page holds, the judge answers and stays within a line") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    JobJudge judge;
    for (int look = 0; look < 4; ++look) {
      JobView job = RunningJob(2, 4);
      AddGroup(job, 5, "a\x1b[2J", {0, 1, 2});
      AddGroup(job, 6, "b", {2, 3, 4});
      Spoil(random, job);
      const JudgedNews news = judge.Look(At(look * 2), job);
      CHECK(job.problems.size() < 100);
      for (const Problem& problem : job.problems) {
        CHECK(problem.text.size() < 1000);
        CHECK(problem.text != Contains("\x1b"));
        CHECK(std::isfinite(problem.since_s));
        CHECK(std::is_sorted(problem.ranks.begin(), problem.ranks.end()));
      }
      CHECK(job.sentence.size() < 1000);
      CHECK(job.waiting_line.size() < 1000);
      CHECK(std::isfinite(judge.ledger().total_s()));
      CHECK(judge.ledger().total_s() >= 0);
      CHECK(news.lines.size() < 50);
    }
  }
}

TEST_CASE("size: a hundred thousand ranks, one of them stuck") {
  JobView job = RunningJob(100, 1000);
  LetStep(job, 7, 50);
  LetAllWaitFor(job, {54321}, 42);
  Watch watch;
  const JudgedNews news = watch.LookTwice(job);
  REQUIRE(news.hang);
  CHECK(news.hang->ranks == std::vector{54321});
  CHECK(news.hang->text ==
        "rank 54321 (node gpu-054) has not come to all-reduce #101 for 42 s; ranks 0-54320, "
        "54322-99999 wait for it; it computes (1.0 cores)");
}

}  // namespace
}  // namespace ddprun::launcher
