#include "launcher/check/check_plan.h"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <numeric>
#include <set>

namespace ddprun::launcher {
namespace {

std::vector<int> Units(int count) {
  std::vector<int> units(static_cast<size_t>(count));
  std::iota(units.begin(), units.end(), 0);
  return units;
}

// All rounds, where a pair's speed is what `speed` says of it.
PairRounds Play(int count, const std::function<double(UnitPair)>& speed) {
  PairRounds rounds;
  for (;;) {
    const std::vector<UnitPair> pairs = NextPairs(Units(count), rounds);
    if (pairs.empty()) return rounds;
    std::vector<PairResult>& round = rounds.emplace_back();
    for (const UnitPair& pair : pairs) {
      round.push_back({.pair = pair, .gb_per_s = speed(pair)});
    }
  }
}

TEST_CASE("check plan: neighbours first, then whoever was slow meets one that was fast") {
  CHECK(NextPairs(Units(4), {}) == std::vector<UnitPair>{{0, 1}, {2, 3}});
  const PairRounds first = {{{{0, 1}, 5.0, ""}, {{2, 3}, 1.0, ""}}};
  CHECK(NextPairs(Units(4), first) == std::vector<UnitPair>{{2, 0}, {3, 1}});
}

TEST_CASE("check plan: one alone has no round, two have one, an even number two, an odd three") {
  const auto rounds = [](int count) { return Play(count, [](UnitPair) { return 1.0; }).size(); };
  CHECK(rounds(0) == 0);
  CHECK(rounds(1) == 0);
  CHECK(rounds(2) == 1);
  CHECK(rounds(3) == 3);
  CHECK(rounds(4) == 2);
  CHECK(rounds(7) == 3);
  CHECK(rounds(8) == 2);
}

TEST_CASE("check plan: whichever one is bad is alone in having no pair that is well") {
  for (int count = 3; count <= 33; ++count) {
    for (int bad = 0; bad < count; ++bad) {
      CAPTURE(count);
      CAPTURE(bad);
      const PairRounds rounds =
          Play(count, [bad](UnitPair pair) { return pair.a == bad || pair.b == bad ? 0.0 : 1.0; });
      std::map<int, std::set<int>> partners;
      std::map<int, double> best;
      for (const auto& round : rounds) {
        std::set<int> busy;
        for (const PairResult& result : round) {
          for (const auto& [one, other] :
               {std::pair(result.pair.a, result.pair.b), {result.pair.b, result.pair.a}}) {
            CHECK(busy.insert(one).second);
            partners[one].insert(other);
            best[one] = std::max(best[one], result.gb_per_s);
          }
        }
        CHECK(busy.size() >= static_cast<size_t>(count - 1));
      }
      for (int unit = 0; unit < count; ++unit) {
        CAPTURE(unit);
        CHECK((best[unit] > 0) == (unit != bad));
        CHECK(partners[unit].size() >= 2);
      }
    }
  }
}

TEST_CASE("check plan: pairs survive the way through the store, and nonsense is no pair") {
  const std::vector<UnitPair> pairs = {{0, 12}, {3, 4}};
  CHECK(PairsText(pairs) == "0-12 3-4");
  CHECK(ParsePairs(PairsText(pairs)) == pairs);
  CHECK(ParsePairs("").empty());
  CHECK(ParsePairs("1 x-y -").empty());
}

}  // namespace
}  // namespace ddprun::launcher
