// The loop that measures, over a training whose steps are as long as the test says.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "bench/training.h"

namespace ddprun::bench {
namespace {

class PlayedTraining final : public Training {
 public:
  absl::StatusOr<StepRecord> Step() override {
    const int step = ++steps;
    if (step == failing_step) return absl::DataLossError("on purpose");
    const double ms = step <= kLossSteps ? warm_ms : 10.0 + step % 3;
    return StepRecord{.step_ms = ms,
                      .communication_ms = ms / 2,
                      .exposed_ms = ms / 4,
                      .phases = {{std::to_string(step), 0, ms}}};
  }
  absl::StatusOr<double> Loss() override {
    steps_at_loss = steps;
    return 1.5;
  }
  absl::StatusOr<double> Largest(double mine) override { return std::max(mine, slowest_ms); }
  absl::Status Complete(Row& row) override {
    row.ranks = 3;
    return absl::OkStatus();
  }

  double warm_ms = 10, slowest_ms = 0;
  int failing_step = 0;
  int steps = 0, steps_at_loss = 0;
};

TEST_CASE("measure: medians over as many steps as fit, and the loss after those that warm up") {
  PlayedTraining training;
  const absl::StatusOr<Report> report = Measure(training, 0.3);
  REQUIRE(report.ok());
  const Row& row = report->rows.at(0);
  CHECK(row.steps == 30);
  CHECK(training.steps == kLossSteps + 30);
  CHECK(training.steps_at_loss == kLossSteps);
  CHECK(row.final_loss == 1.5);
  CHECK(row.step_ms == 11);
  CHECK(row.communication_ms == 5.5);
  CHECK(row.exposed_ms == 2.75);
  CHECK(row.samples_per_second == doctest::Approx(1000 * kGlobalBatch / 11.0));
  const Timeline& timeline = report->timelines.at(0);
  CHECK(timeline.ranks == 3);
  CHECK(timeline.step_ms == 11);
  CHECK(timeline.phases.at(0).name == "13");  // the first that is as long as the median
}

TEST_CASE("measure: the slowest rank says how many steps fit, within bounds") {
  PlayedTraining training;
  training.slowest_ms = 50;
  CHECK(Measure(training, 0.5)->rows.at(0).steps == 10);
  PlayedTraining slow, quick;
  slow.warm_ms = 1e6;
  CHECK(Measure(slow, 0.1)->rows.at(0).steps == 5);
  quick.warm_ms = 0;
  CHECK(Measure(quick, 1000)->rows.at(0).steps == 400);
}

TEST_CASE("measure: a step that fails ends it with its error") {
  for (const int step : {1, kLossSteps + 2}) {
    PlayedTraining training;
    training.failing_step = step;
    CHECK(Measure(training, 0.3).status() == absl::DataLossError("on purpose"));
    CHECK(training.steps == step);
  }
}

TEST_CASE("measure: the median of none is 0, of an even number the upper one") {
  CHECK(Median({}) == 0);
  CHECK(Median({3}) == 3);
  CHECK(Median({4, 1, 3, 2}) == 3);
}

}  // namespace
}  // namespace ddprun::bench
