#include "launcher/check/check_report.h"

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

TEST_CASE(
    "check report: what a rank says survives the way, and other programs' lines are left out") {
  const RankReport report = {.node = 3,
                             .host = "gpu-17",
                             .device = "GPU 2",
                             .pass_ms = 12.5,
                             .memory_gb_s = 8,
                             .inside_gb_s = 100,
                             .pair_gb_s = 2.25,
                             .fault = "was killed by signal 9 (SIGKILL)",
                             .error = "two\nlines"};
  const RankReport read = ParseReport("gpu-17:1 NCCL INFO x\n" + ReportText(report) + "\nnode x\n");
  CHECK(read.node == 3);
  CHECK(read.host == "gpu-17");
  CHECK(read.device == "GPU 2");
  CHECK(read.pass_ms == 12.5);
  CHECK(read.memory_gb_s == 8);
  CHECK(read.inside_gb_s == 100);
  CHECK(read.pair_gb_s == 2.25);
  CHECK(read.fault == report.fault);
  CHECK(read.error == "two\\nlines");
  CHECK(ParseReport("").node == -1);
}

std::vector<RankReport> On(const std::vector<std::pair<int, std::string>>& places) {
  std::vector<RankReport> here;
  for (const auto& [node, host] : places) here.push_back({.node = node, .host = host});
  return here;
}

TEST_CASE("check report: a node is as its slowest rank, and is called by its host") {
  const auto here = On({{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}});
  const std::vector<RankReport> alone = {{.pass_ms = 1, .memory_gb_s = 9},
                                         {.pass_ms = 3, .memory_gb_s = 7},
                                         {.pass_ms = 2, .memory_gb_s = 8},
                                         {.pass_ms = 2, .memory_gb_s = 8}};
  const CheckFacts facts = FactsOf(here, alone, 2, 1.5);
  REQUIRE(facts.units.size() == 2);
  CHECK(facts.is_by_node);
  CHECK(facts.units[0].name == "a");
  CHECK(facts.units[0].pass_ms == 3);
  CHECK(facts.units[0].memory_gb_s == 7);
  CHECK(facts.units[1].name == "b");
  CHECK(facts.units[1].pass_ms == 2);
}

TEST_CASE("check report: nodes of one host have numbers, and one that said nothing has its place") {
  const auto here = On({{0, "vm"}, {0, "vm"}, {-1, ""}, {-1, ""}, {2, "vm"}, {2, "vm"}});
  CHECK(UnitsOfRanks(here, 3) == std::vector<int>{0, 0, 1, 1, 2, 2});
  const CheckFacts facts = FactsOf(here, std::vector<RankReport>(6), 3, 1.5);
  CHECK(facts.units[0].name == "0 (vm)");
  CHECK(facts.units[1].name == "1");
  CHECK(facts.units[2].name == "2 (vm)");
}

TEST_CASE("check report: beside a rank that died, what the others of its node say breaks nothing") {
  const auto here = On({{0, "a"}, {0, "a"}, {0, "a"}});
  const CheckFacts facts = FactsOf(
      here, {{.error = "rank 1 left"}, {.fault = "was killed"}, {.error = "rank 1 left"}}, 1, 1.5);
  REQUIRE(facts.units.size() == 3);
  CHECK(facts.units[0].broken == "");
  CHECK(facts.units[1].broken == "was killed");
  CHECK(facts.units[2].broken == "");
  CHECK(WorkingUnits(facts) == std::vector<int>{0, 2});
}

TEST_CASE("check report: without a fault an error breaks who said it, and its node is told which") {
  const auto here = On({{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}});
  const CheckFacts facts = FactsOf(here, {{}, {}, {}, {.error = "no room"}}, 2, 1.5);
  CHECK(facts.units[0].broken == "");
  CHECK(facts.units[1].broken == "rank 3 says: no room");
}

TEST_CASE("check report: a round's pair is as fast as its slowest rank, and fails as a whole") {
  const auto here = On({{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}});
  CheckFacts facts = FactsOf(here, std::vector<RankReport>(4), 2, 1.5);
  const std::vector<int> units = UnitsOfRanks(here, 2);
  AddRound({{0, 1}}, {{.pair_gb_s = 4}, {.pair_gb_s = 2}, {.pair_gb_s = 3}, {.pair_gb_s = 4}},
           units, facts);
  CHECK(facts.rounds[0][0].gb_per_s == 2);
  AddRound({{0, 1}},
           {{.pair_gb_s = 4}, {.error = "timed out"}, {.pair_gb_s = 4}, {.fault = "was killed"}},
           units, facts);
  CHECK(facts.rounds[1][0].gb_per_s == 0);
  CHECK(facts.rounds[1][0].failure == "timed out");
  CHECK(facts.units[0].broken == "");
  CHECK(facts.units[1].broken == "rank 3 was killed in round 2");
}

TEST_CASE("check report: a rank counts by its best time, a unit by its slowest rank") {
  const auto here = On({{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}});
  const std::vector<int> units = UnitsOfRanks(here, 2);
  CheckFacts facts = FactsOf(here,
                             {{.pass_ms = 90, .memory_gb_s = 1},
                              {.pass_ms = 10, .memory_gb_s = 9},
                              {.pass_ms = 12, .memory_gb_s = 8},
                              {.pass_ms = 11}},
                             2, 1.5);
  CHECK(facts.units[0].pass_ms == 90);
  CHECK(facts.units[0].memory_gb_s == 1);
  CHECK(facts.units[1].pass_ms == 12);
  CHECK(facts.units[1].memory_gb_s == 8);
  AddRound(
      {{0, 1}},
      {{.pass_ms = 13, .memory_gb_s = 7}, {.pass_ms = 80, .memory_gb_s = 2}, {}, {.pass_ms = 14}},
      units, facts);
  CHECK(facts.units[0].pass_ms == 13);
  CHECK(facts.units[0].memory_gb_s == 7);
  CHECK(facts.units[1].pass_ms == 12);
  CHECK(facts.units[1].memory_gb_s == 8);
}

}  // namespace
}  // namespace ddprun::launcher
