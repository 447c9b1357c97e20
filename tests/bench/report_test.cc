#include "bench/report.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/bench/example_report.h"
#include "tests/support/contains.h"

namespace ddprun::bench {
namespace {

TEST_CASE("report: a speed-up compares with one rank of the same way") {
  Report report = ExampleReport();
  RowOf(report, Way::kDataParallel, 1).samples_per_second = 100;
  RowOf(report, Way::kDataParallel, 4).samples_per_second = 150;
  CHECK(Speedup(report, RowOf(report, Way::kDataParallel, 4)) == doctest::Approx(1.5));
  CHECK(Speedup(report, RowOf(report, Way::kDistributed, 4)) == doctest::Approx(40.0 / 11));
}

TEST_CASE("report: the imbalance of memory is what the fullest device holds more") {
  Report report = ExampleReport();
  CHECK(MemoryImbalance(RowOf(report, Way::kDataParallel, 4)) == doctest::Approx(0.25));
  CHECK(MemoryImbalance(RowOf(report, Way::kDistributed, 4)) == 0);
  CHECK(MemoryImbalance({}) == 0);
}

TEST_CASE("report: the recommended cap is the largest that is as fast as the best within noise") {
  Report report = ExampleReport();
  REQUIRE(RecommendedCap(report) != nullptr);
  CHECK(RecommendedCap(report)->cap_mb == 4);
  report.sweep[2].step_ms = 11.3;
  CHECK(RecommendedCap(report)->cap_mb == 1);
  report.sweep.clear();
  CHECK(RecommendedCap(report) == nullptr);
}

TEST_CASE("report: of two measurements of a row the faster stays, with its time line") {
  Report report = ExampleReport(), slower = ExampleReport(), faster = ExampleReport();
  for (Report* other : {&slower, &faster}) {
    std::erase_if(other->rows,
                  [](const Row& row) { return row.way != Way::kDistributed || row.ranks != 4; });
    std::erase_if(other->timelines, [](const Timeline& t) { return t.way != Way::kDistributed; });
    other->sweep.clear();
  }
  slower.rows[0].step_ms = slower.timelines[0].step_ms = 12;
  faster.rows[0].step_ms = faster.timelines[0].step_ms = 10;
  Merge(slower, report);
  CHECK(RowOf(report, Way::kDistributed, 4).step_ms == 11);
  Merge(faster, report);
  CHECK(RowOf(report, Way::kDistributed, 4).step_ms == 10);
  CHECK(report.rows.size() == 6);
  REQUIRE(report.timelines.size() == 2);
  CHECK(report.timelines[1].step_ms == 10);
  CHECK(report.sweep.size() == 4);
}

TEST_CASE("report: halves that are far apart make numbers uncertain, and those are named") {
  Report report = ExampleReport();
  const auto merge_half = [&report](Way way, int ranks, double factor) {
    Report half = ExampleReport();
    std::erase_if(half.rows, [&](const Row& row) { return row.way != way || row.ranks != ranks; });
    half.rows[0].step_ms *= factor;
    Merge(half, report);
  };
  merge_half(Way::kDistributed, 4, 1.09);
  CHECK(RowOf(report, Way::kDistributed, 4).halves_apart == doctest::Approx(0.09));
  CHECK(Uncertainty(report).empty());
  merge_half(Way::kDistributed, 2, 1.25);
  CHECK(Uncertainty(report) == Contains("Uncertain: step, samples/s and speed-up of ddp with 2 "
                                        "ranks by 25 %, as the two halves of "
                                        "their measurement are so far apart. Close"));
  merge_half(Way::kDataParallel, 1, 1 / 1.5);  // the second half is the faster one
  CHECK(RowOf(report, Way::kDataParallel, 1).halves_apart == doctest::Approx(0.5));
  CHECK(Uncertainty(report) ==
        Contains("of dp with 1 rank by 50 %, ddp with 2 ranks by 25 %, as the two halves of their "
                 "measurement are so far apart; and so the speed-ups of all dp rows. Close"));
}

TEST_CASE("report: so they do of the sweep, and what it recommends") {
  Report report = ExampleReport();
  report.sweep[1].halves_apart = 0.1;
  CHECK(Uncertainty(report).empty());
  report.sweep[1].halves_apart = 0.12;
  report.sweep[3].halves_apart = 0.3;
  CHECK(Uncertainty(report) ==
        Contains("Uncertain: the step with bucket_cap_mb 1 by 12 %, 25 by 30 %, as the two halves "
                 "of their "
                 "measurement are so far apart; and so what bucket_cap_mb is recommended. Close"));
  RowOf(report, Way::kDistributed, 1).halves_apart = 0.5;
  CHECK(
      Uncertainty(report) ==
      Contains(
          "speed-up of ddp with 1 rank by 50 %; the step with bucket_cap_mb 1 by 12 %, 25 by 30 %, "
          "as the two halves of their measurement are so far apart; and so what bucket_cap_mb is "
          "recommended, and the speed-ups of all ddp rows. Close"));
}

TEST_CASE("report: a half that has learnt otherwise is told, whichever is faster") {
  for (const double step_ms : {10.0, 12.0}) {
    for (const double loss : {9.0, std::nan("")}) {
      Report report = ExampleReport(), half = ExampleReport();
      std::erase_if(half.rows,
                    [](const Row& row) { return row.way != Way::kDistributed || row.ranks != 4; });
      half.rows[0].step_ms = step_ms;
      half.rows[0].final_loss = loss;
      CHECK(LossDifference(report).empty());
      Merge(half, report);
      CHECK(!LossDifference(report).empty());
    }
  }
}

TEST_CASE("report: losses are equal within the tolerance, and a difference names both rows") {
  Report report = ExampleReport();
  Row& row = RowOf(report, Way::kDistributed, 2);
  row.final_loss *= 1 + 0.9 * kLossTolerance;
  CHECK(LossDifference(report).empty());
  row.final_loss = 2.25 * (1 + 1.1 * kLossTolerance);
  CHECK(
      LossDifference(report) ==
      Contains("after 10 steps that of ddp with 2 ranks is 2.250247 and that of dp with 1 rank is "
               "2.250000; they may be apart by 0.0001 of it"));
  row.final_loss = std::nan("");
  CHECK_FALSE(LossDifference(report).empty());
}

TEST_CASE("report: what is shown has a core for each rank where that is possible") {
  CHECK(RanksWithCores({1, 2, 4, 8}, {.cores = 5}) == 4);
  CHECK(RanksWithCores({1, 2, 4}, {.cores = 8}) == 4);
  CHECK(RanksWithCores({1, 4, 8}, {.cores = 2}) == 4);
  CHECK(RanksWithCores({1, 2, 4}, {.cores = 8, .core_quota = 2.5}) == 2);
  CHECK(RanksWithCores({1}, {.cores = 8}) == 0);
  CHECK(RanksWithCores({1, 2, 4}, {.cores = 2, .gpus = 8}) == 4);
}

}  // namespace
}  // namespace ddprun::bench
