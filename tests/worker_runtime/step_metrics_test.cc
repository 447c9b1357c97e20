#include "ddp/step_metrics.h"

#include <doctest/doctest.h>

namespace ddp {
namespace {

using std::chrono::milliseconds;

// Backward ends at 50 ms and communication at `end`; `busy` of it was under way.
ReductionTimes Reduction(milliseconds end, milliseconds busy) {
  const ReductionTimes::TimePoint start{std::chrono::hours(1)};
  return {.backward_end = start + milliseconds(50),
          .communication_end = start + end,
          .communication = busy};
}

TEST_CASE("metrics: exposed is what is left of communication after backward") {
  CHECK(Reduction(milliseconds(55), milliseconds(30)).Exposed() == milliseconds(5));
  CHECK(Reduction(milliseconds(50), milliseconds(30)).Exposed() == milliseconds(0));
  CHECK(Reduction(milliseconds(20), milliseconds(10)).Exposed() == milliseconds(0));
  CHECK(ReductionTimes{}.Exposed() == milliseconds(0));
}

TEST_CASE("metrics: means and rates are over all steps and ranks") {
  StepMetrics metrics(4);
  metrics.Add(64, milliseconds(100), Reduction(milliseconds(60), milliseconds(30)));
  metrics.Add(32, milliseconds(60), Reduction(milliseconds(40), milliseconds(10)));
  CHECK(metrics.steps() == 2);
  CHECK(metrics.step_ms() == doctest::Approx(80));
  CHECK(metrics.communication_ms() == doctest::Approx(20));
  CHECK(metrics.exposed_ms() == doctest::Approx(5));
  CHECK(metrics.samples_per_second() == doctest::Approx(4 * 96 / 0.160));
  CHECK(metrics.exposed_communication_share() == doctest::Approx(10.0 / 160));
  CHECK(metrics.Summary() ==
        "2400 samples/s, step 80.00 ms, communication 20.00 ms, exposed 5.00 ms (6.2 %)");
  metrics.Reset();
  CHECK(metrics.steps() == 0);
  CHECK(metrics.samples_per_second() == 0);
}

TEST_CASE("metrics: nothing measured is zero and no warning") {
  const StepMetrics metrics(1);
  CHECK(metrics.step_ms() == 0);
  CHECK(metrics.samples_per_second() == 0);
  CHECK(metrics.exposed_communication_share() == 0);
  CHECK(metrics.Warning(2).empty());
  CHECK(metrics.Summary() == "0 samples/s, step 0 ms, communication 0 ms, exposed 0 ms (0.0 %)");
}

TEST_CASE("metrics: warns above a tenth of the step and not at it") {
  StepMetrics at(2), above(2);
  at.Add(1, milliseconds(100), Reduction(milliseconds(60), milliseconds(10)));
  above.Add(1, milliseconds(100), Reduction(milliseconds(61), milliseconds(11)));
  CHECK(at.Warning(2).empty());
  const std::string what =
      "11.0 % of the step is exposed communication (11.00 of 100.00 ms; at most 10 % is good): ";
  CHECK(above.Warning(2) ==
        what + "larger batches, more accumulation or a faster network would help");
  CHECK(above.Warning(1) == what + "larger batches or more accumulation would help");
}

TEST_CASE("metrics: what is below the resolution is told as such, and not as nothing") {
  StepMetrics metrics(1);
  ReductionTimes reduction;
  reduction.communication = std::chrono::microseconds(4);
  metrics.Add(1, std::chrono::microseconds(20), reduction);
  CHECK(metrics.Summary() ==
        "50000 samples/s, step 0.02 ms, communication <0.01 ms, exposed 0 ms (0.0 %)");
}

TEST_CASE("metrics: a step that was begun and ended counts once, with its time") {
  StepMetrics metrics(1);
  metrics.BeginStep();
  metrics.EndStep(8, {});
  CHECK(metrics.steps() == 1);
  CHECK(metrics.step_ms() >= 0);
  CHECK(metrics.exposed_communication_share() == 0);
}

}  // namespace
}  // namespace ddp
