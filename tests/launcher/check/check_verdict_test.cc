#include "launcher/check/check_verdict.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "launcher/check/check_text.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

// Nodes a, b, c, ... that are all alike.
CheckFacts Alike(int count) {
  CheckFacts facts{.is_by_node = true, .ranks = 4 * count};
  for (int i = 0; i < count; ++i) {
    facts.units.push_back({.name = std::string(1, static_cast<char>('a' + i)),
                           .device = "CPU",
                           .pass_ms = 10,
                           .memory_gb_s = 8,
                           .inside_gb_s = 20});
  }
  return facts;
}

TEST_CASE("check verdict: nodes that are all alike are well, however slow") {
  CheckFacts facts = Alike(4);
  for (UnitFacts& unit : facts.units) unit.pass_ms = 1000;
  facts.rounds = {{{{0, 1}, 1e-3, ""}, {{2, 3}, 1e-3, ""}}};
  const CheckVerdict verdict = JudgeCheck(facts);
  CHECK(verdict.is_well);
  CHECK(verdict.sentence == "check: 4 nodes, 16 ranks: all are well");
}

TEST_CASE("check verdict: a node that computes slowly is named with how much") {
  CheckFacts facts = Alike(4);
  facts.units[2].pass_ms = 21;
  const CheckVerdict verdict = JudgeCheck(facts);
  CHECK_FALSE(verdict.is_well);
  CHECK(verdict.sentence ==
        "check: 4 nodes, 16 ranks: node c is slow: computes 2.1 times slower than the median");
  REQUIRE(verdict.units.size() == 4);
  CHECK(verdict.units[0].unit == 2);
  CHECK(verdict.units[0].state == UnitState::kSlow);
}

// The rounds until all is known, where unit 1 computes in `pass_ms`, one after the other.
size_t RoundsUntilTheEnd(CheckFacts& facts, const std::vector<double>& pass_ms) {
  facts.is_by_node = false;
  std::vector<RankReport> alone(facts.units.size(), {.pass_ms = 10, .memory_gb_s = 8});
  alone[1].pass_ms = pass_ms[0];
  std::vector<int> units;
  for (size_t unit = 0; unit < alone.size(); ++unit) units.push_back(static_cast<int>(unit));
  facts = FactsOf(alone, alone, 1, facts.tolerance);
  for (;;) {
    const std::vector<UnitPair> pairs = PairsAfter(facts);
    if (pairs.empty()) return facts.rounds.size();
    std::vector<RankReport> reports = alone;
    for (RankReport& report : reports) report.pair_gb_s = 1;
    reports[1].pass_ms = pass_ms[std::min(facts.rounds.size() + 1, pass_ms.size() - 1)];
    AddRound(pairs, reports, units, facts);
  }
}

TEST_CASE("check verdict: one that seems slow is measured again before it is called so") {
  for (const int count : {2, 3, 4}) {
    CAPTURE(count);
    CheckFacts facts = Alike(count);
    const size_t planned = static_cast<size_t>(RoundsFor(facts.units.size()));
    CHECK(RoundsUntilTheEnd(facts, {10}) == planned);
    CHECK(JudgeCheck(facts).is_well);
    std::vector<double> busy(planned + 1, 40);  // in all that was planned, and once more
    busy.insert(busy.end(), {40, 11});
    CHECK(RoundsUntilTheEnd(facts, busy) == planned + 2);
    CHECK(JudgeCheck(facts).is_well);
    CHECK(RoundsUntilTheEnd(facts, {40}) == planned + kRoundsAgain);
    CHECK(JudgeCheck(facts).sentence == Contains("rank 1 is slow: computes 4.0 times slower"));
  }
}

TEST_CASE("check verdict: up to the tolerance nobody is slow") {
  CheckFacts facts = Alike(4);
  facts.units[2].pass_ms = 15;
  CHECK(JudgeCheck(facts).is_well);
  facts.units[2].pass_ms = 16;
  CHECK_FALSE(JudgeCheck(facts).is_well);
  facts.tolerance = 2;
  CHECK(JudgeCheck(facts).is_well);
}

TEST_CASE("check verdict: of two nodes the slow one is compared with the other") {
  CheckFacts facts = Alike(2);
  facts.units[1].memory_gb_s = 2;
  const std::string sentence = JudgeCheck(facts).sentence;
  CHECK(sentence == Contains("node b is slow: copies memory 4.0 times slower than the median"));
}

TEST_CASE("check verdict: two rounds name the node with a slow network, not its partners") {
  CheckFacts facts = Alike(4);
  facts.rounds = {{{{0, 1}, 0.5, ""}, {{2, 3}, 2, ""}}, {{{0, 2}, 0.5, ""}, {{1, 3}, 2, ""}}};
  const CheckVerdict verdict = JudgeCheck(facts);
  CHECK(verdict.sentence ==
        "check: 4 nodes, 16 ranks: node a is slow: all-reduces with others 4.0 times slower than "
        "the median");
}

TEST_CASE("check verdict: of three nodes three rounds name the slow one") {
  for (int bad = 0; bad < 3; ++bad) {
    CheckFacts facts = Alike(3);
    for (const UnitPair pair : {UnitPair{0, 1}, UnitPair{0, 2}, UnitPair{1, 2}}) {
      const bool is_slow = pair.a == bad || pair.b == bad;
      facts.rounds.push_back({{pair, is_slow ? 0.1 : 1.0, ""}});
    }
    const CheckVerdict verdict = JudgeCheck(facts);
    CHECK(verdict.units[0].unit == bad);
    CHECK(verdict.units[0].state == UnitState::kSlow);
    CHECK(verdict.units[1].state == UnitState::kWell);
  }
}

TEST_CASE("check verdict: a node none of whose pairs works is broken, its partners are well") {
  CheckFacts facts = Alike(4);
  facts.rounds = {{{{0, 1}, 0, "timed out"}, {{2, 3}, 2, ""}},
                  {{{0, 2}, 2, ""}, {{1, 3}, 0, "timed out"}}};
  const CheckVerdict verdict = JudgeCheck(facts);
  CHECK(verdict.sentence ==
        "check: 4 nodes, 16 ranks: node b is broken: cannot all-reduce with a nor d: timed out");
}

TEST_CASE("check verdict: a broken pair whose ends are well with a third is told as that") {
  CheckFacts facts = Alike(3);
  facts.rounds = {{{{0, 1}, 0, "timed out"}}, {{{0, 2}, 2, ""}}, {{{1, 2}, 2, ""}}};
  const CheckVerdict verdict = JudgeCheck(facts);
  CHECK_FALSE(verdict.is_well);
  CHECK(verdict.units[0].state == UnitState::kWell);
  CHECK(verdict.sentence ==
        "check: 3 nodes, 12 ranks: node a and node b are well, but cannot all-reduce with each "
        "other: timed out");
}

TEST_CASE("check verdict: two nodes that cannot all-reduce are both named") {
  CheckFacts facts = Alike(2);
  facts.rounds = {{{{0, 1}, 0, "timed out"}}};
  const std::string sentence = JudgeCheck(facts).sentence;
  CHECK(sentence ==
        Contains("node a is broken: cannot all-reduce with b: timed out; node b is broken: "));
}

TEST_CASE("check verdict: beside a node that died in a pair its partner is not blamed") {
  CheckFacts facts = Alike(2);
  facts.units[1].broken = "rank 5 was killed by signal 9 (SIGKILL) in round 1";
  facts.rounds = {{{{0, 1}, 0, "rank 5 left"}}};
  const CheckVerdict verdict = JudgeCheck(facts);
  CHECK(verdict.sentence ==
        "check: 2 nodes, 8 ranks: node b is broken: rank 5 was killed by signal 9 (SIGKILL) in "
        "round 1");
}

TEST_CASE("check verdict: the sentence names three, the worst first, and counts the rest") {
  CheckFacts facts = Alike(12);
  for (int i = 0; i < 5; ++i) facts.units[static_cast<size_t>(i)].pass_ms = 100 * (i + 1);
  facts.units[11].broken = "rank 44 did not end within 10 s";
  const std::string sentence = JudgeCheck(facts).sentence;
  CHECK(sentence ==
        Contains("node l is broken: rank 44 did not end within 10 s; node e is slow: computes 50"));
  CHECK(sentence == Contains("; and 3 more"));
}

TEST_CASE("check verdict: ranks of one node are ranks, and one alone has nothing to compare with") {
  CheckFacts facts = Alike(3);
  facts.is_by_node = false;
  facts.ranks = 3;
  for (int i = 0; i < 3; ++i) facts.units[static_cast<size_t>(i)].name = std::to_string(i);
  facts.units[1].pass_ms = 40;
  facts.units[0].inside_gb_s = 1;  // they all-reduce together
  CHECK(JudgeCheck(facts).sentence ==
        "check: 3 ranks: rank 1 is slow: computes 4.0 times slower than the median");
  facts.units.resize(1);
  facts.ranks = 1;
  CHECK(JudgeCheck(facts).sentence ==
        "check: 1 rank: it works, and has no other to be compared with");
}

TEST_CASE("check verdict: the table has the worst first and each round's partner") {
  CheckFacts facts = Alike(3);
  facts.units[2].pass_ms = 30;
  facts.units[0].name = "0 (vm)";
  facts.rounds = {{{{0, 1}, 2, ""}}, {{{0, 2}, 0, "timed out"}}};
  const std::string text = CheckText(facts, JudgeCheck(facts));
  CHECK(text ==
        "NODE    STATE   ON   COMPUTES     COPIES      WITHIN  ROUND 1           ROUND 2\n"
        "c       broken  CPU  30.00 ms  8.00 GB/s  20.00 GB/s  -                 failed with 0\n"
        "0 (vm)  ok      CPU  10.00 ms  8.00 GB/s  20.00 GB/s  2.00 GB/s with b  failed with c\n"
        "b       ok      CPU  10.00 ms  8.00 GB/s  20.00 GB/s  2.00 GB/s with 0  -\n"
        "check: 3 nodes, 12 ranks: node c is broken: cannot all-reduce with 0 (vm): timed out\n");
}

}  // namespace
}  // namespace ddprun::launcher
