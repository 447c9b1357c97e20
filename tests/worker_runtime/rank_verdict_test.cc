#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "ddp/rank_balance.h"
#include "tests/support/contains.h"

namespace ddp {
namespace {

constexpr char kNetwork[] = "a faster network would help";

// Ranks with a core each whose step lasts as long as that of the slowest: the others wait.
std::vector<RankSteps> Ranks(const std::vector<double>& self_ms) {
  std::vector<RankSteps> ranks;
  double step = 0;
  for (const double self : self_ms) step = std::max(step, self);
  for (const double self : self_ms) {
    ranks.push_back({.step_ms = step, .exposed_ms = step - self, .cores = 8});
  }
  return ranks;
}

// Ranks that share two cores and wait for them.
std::vector<RankSteps> OnTwoCores(std::vector<RankSteps> ranks, double core_wait_ms) {
  for (RankSteps& rank : ranks) {
    rank.cores = 2;
    rank.ranks_on_cores = static_cast<int>(ranks.size());
    rank.communication_wait_ms = core_wait_ms;
  }
  return ranks;
}

TEST_CASE("rank verdict: the slow rank is named, with its time and the others'") {
  const std::vector<RankSteps> ranks = Ranks({12, 31, 12.5, 11});
  CHECK(SlowRanks(ranks) == std::vector<int>{1});
  CHECK(SpeedAdvice(ranks, 0, kNetwork) ==
        "rank 1 is slow: it takes 31.00 ms a step by itself, the others 12.00 ms; they wait for "
        "it");
  CHECK(SpeedAdvice(ranks, 1, kNetwork) == SpeedAdvice(ranks, 0, kNetwork));
}

TEST_CASE("rank verdict: of a slow rank is told what it waited for a core of its own") {
  std::vector<RankSteps> ranks = Ranks({12, 31});
  ranks[1].step_wait_ms = 9;
  CHECK(SlowRankText(ranks) ==
        Contains("by itself, up to 9.00 ms of it waiting for a CPU core, the others"));
  ranks[1].step_wait_ms = 3;
  CHECK(SlowRankText(ranks) == Contains("by itself, the others"));
}

TEST_CASE("rank verdict: others that take next to nothing by themselves are shown as <0.01 ms") {
  CHECK(SlowRankText(Ranks({0.001, 31})) ==
        "rank 1 is slow: it takes 31.00 ms a step by itself, the others <0.01 ms; they wait for "
        "it");
}

TEST_CASE("rank verdict: of two ranks the slower one, of four the slower two") {
  CHECK(SlowRanks(Ranks({12, 31})) == std::vector<int>{1});
  CHECK(SlowRanks(Ranks({31, 12})) == std::vector<int>{0});
  const std::vector<RankSteps> ranks = Ranks({12, 31, 12, 30});
  CHECK(SlowRanks(ranks) == std::vector<int>{1, 3});
  CHECK(SlowRankText(ranks) ==
        "ranks 1 and 3 are slow: they take up to 31.00 ms a step by themselves, the others 12.00 "
        "ms; they wait for them");
}

TEST_CASE(
    "rank verdict: ranks that differ by a tenth of the step or less are alike, as is a group of "
    "one") {
  CHECK(SlowRanks(Ranks({10, 11, 10, 10})).empty());
  CHECK(SlowRanks(Ranks({10, 11.2, 10, 10})) == std::vector<int>{1});
  CHECK(SlowRanks(Ranks({1, 10, 10, 10})).empty());  // a fast rank makes nobody wait
  CHECK(SlowRanks(Ranks({31})).empty());
  CHECK(SlowRanks({}).empty());
  CHECK(SlowRanks(Ranks({0, 0})).empty());
}

TEST_CASE("rank verdict: exposed communication of equal ranks is the network's") {
  std::vector<RankSteps> ranks = Ranks({9, 9});
  for (RankSteps& rank : ranks) rank.step_ms = 10.1, rank.exposed_ms = 1.1;
  CHECK(SpeedAdvice(ranks, 0, kNetwork) == kNetwork);
  for (RankSteps& rank : ranks) rank.step_ms = 10, rank.exposed_ms = 1;
  CHECK(SpeedAdvice(ranks, 0, kNetwork) == "");
}

TEST_CASE("rank verdict: where cores are short the waiting is for them, and no network is blamed") {
  std::vector<RankSteps> ranks = Ranks({5, 5, 5, 5});
  for (RankSteps& rank : ranks) rank.step_ms = 10, rank.exposed_ms = 4;
  ranks = OnTwoCores(ranks, 1.5);
  CHECK(SpeedAdvice(ranks, 2, kNetwork) ==
        "40.0 % of the step is exposed communication (4.00 of 10.00 ms), of which up to 38 % is "
        "waiting for a CPU core: 4 ranks share 2 cores; fewer ranks or more cores would help");
  // More than there is of it cannot be.
  CHECK(SpeedAdvice(OnTwoCores(ranks, 9), 0, kNetwork) == Contains("up to 100 % is waiting"));
  CHECK(SpeedAdvice(OnTwoCores(ranks, -1), 0, kNetwork) == Contains("an unknown part is waiting"));
  // Ranks that need no core, as on GPUs, do not wait for one.
  CHECK(SpeedAdvice(OnTwoCores(ranks, 0), 0, kNetwork) == kNetwork);
  for (RankSteps& rank : ranks) rank.exposed_ms = 1;
  CHECK(SpeedAdvice(ranks, 0, kNetwork) == "");
}

TEST_CASE("rank verdict: where others use the cores, no network is blamed either") {
  std::vector<RankSteps> ranks = Ranks({5, 5});
  for (RankSteps& rank : ranks) rank.step_ms = 10, rank.exposed_ms = 5;
  for (RankSteps& rank : ranks) rank.communication_wait_ms = 1;
  CHECK(SpeedAdvice(ranks, 0, kNetwork) == kNetwork);
  ranks[1].communication_wait_ms = 3;
  CHECK(SpeedAdvice(ranks, 0, kNetwork) ==
        "50.0 % of the step is exposed communication (5.00 of 10.00 ms), of which up to 40 % is "
        "waiting for a CPU core, which other threads or programs use");
}

TEST_CASE("rank verdict: a rank that only waited for its turn on a core is not slow") {
  std::vector<RankSteps> ranks = OnTwoCores(Ranks({12, 12, 12, 20}), 0);
  CHECK(SlowRanks(ranks) == std::vector<int>{3});
  ranks[3].step_wait_ms = 8;
  CHECK(SlowRanks(ranks).empty());
  ranks[3].step_wait_ms = 80;
  CHECK(SlowRanks(ranks).empty());
  // That the others waited makes it no slower.
  ranks = OnTwoCores(Ranks({12, 12, 12, 13}), 0);
  for (const int rank : {0, 1, 2}) ranks[static_cast<size_t>(rank)].step_wait_ms = 12;
  CHECK(SlowRanks(ranks).empty());
}

}  // namespace
}  // namespace ddp
