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
  CHECK(timeline.step == 3);
  CHECK(timeline.step_ms == 11);
  CHECK(timeline.exposed_ms == 2.75);
  CHECK(timeline.phases.at(0).name == "13");  // the first that is as long as the median
}

TEST_CASE("measure: the step that is shown is near in length and in exposed communication") {
  const Row row{.step_ms = 10, .exposed_ms = 1};
  const auto shown = [&row](std::vector<std::pair<double, double>> steps) {
    std::vector<StepRecord> records;
    for (const auto& [step_ms, exposed_ms] : steps) {
      records.push_back({.step_ms = step_ms, .exposed_ms = exposed_ms});
    }
    return TypicalStep(records, row);
  };
  CHECK(shown({{10, 4}}) == 0);
  CHECK(shown({{10, 4}, {16, 1.5}, {10, 0}}) == 2);
  CHECK(shown({{30, 3}, {11, 1.5}, {11, 0.5}}) == 1);  // an outlier may have the very share
}

TEST_CASE("measure: halves are apart by what the slower one is longer, whichever that is") {
  CHECK(HalvesApart({10, 10, 90, 12, 12, 12}) == doctest::Approx(0.2));
  CHECK(HalvesApart({12, 12, 10, 10, 10}) == doctest::Approx(0.2));
  CHECK(HalvesApart({10, 20, 10, 20}) == 0);
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

}  // namespace
}  // namespace ddprun::bench
