// What StepMetrics tells the launcher. Only children of the test do: whether there is a page is
// found out once in a process.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>

#include "ddp/progress.h"
#include "ddp/step_metrics.h"
#include "launcher/status/rank_page.h"
#include "tests/support/in_child.h"
#include "worker_runtime/counters_page.h"

namespace ddp {
namespace {

using ddprun::launcher::RankCounts;
using ddprun::launcher::RankPage;
using std::chrono::milliseconds;

// Backward ends at 50 ms and communication at `end`; `busy` of it was under way.
ReductionTimes Reduction(milliseconds end, milliseconds busy) {
  const ReductionTimes::TimePoint start{std::chrono::hours(1)};
  return {.backward_end = start + milliseconds(50),  // no limit: a figure
          .communication_end = start + end,
          .communication = busy};
}

// What an agent knows after `body`.
RankCounts Told(const std::function<void()>& body) {
  const auto page = *RankPage::Make();
  const std::string said =
      ddprun::testing::InChild({{internal::kCountersVar, std::to_string(page->fd())}}, [&body] {
        body();
        return std::string("done");
      });
  CHECK(said == "done");
  return page->Read();
}

// no limit: figures
TEST_CASE("metrics: the launcher is told of steps and of what was exposed, by the first alone") {
  const RankCounts told = Told([] {
    auto first = std::make_unique<StepMetrics>(2);
    StepMetrics second(2);
    for (int i = 0; i < 3; ++i) {
      for (StepMetrics* metrics : {first.get(), &second}) {
        metrics->Add(32, milliseconds(100), Reduction(milliseconds(60), milliseconds(30)));
      }
      first->Reset();
    }
    // Its steps have numbers of their own.
    first = nullptr;
    second.Add(32, milliseconds(100), {});
    StepMetrics(2).Add(8, milliseconds(100), Reduction(milliseconds(51), milliseconds(1)));
  });
  CHECK(told.steps == 4);
  CHECK(told.step == 1);
  CHECK(told.samples == 3 * 32 + 8);
  CHECK(told.exposed_ns == 31'000'000);
  CHECK(told.phase == static_cast<uint64_t>(Phase::kTrain));
}

// no limit: figures
TEST_CASE("metrics: where the program tells of its steps, only what was exposed is added") {
  const RankCounts told = Told([] {
    StepMetrics metrics(2);
    for (int step = 101; step < 104; ++step) {
      ReportStep(step, 16);
      metrics.Add(32, milliseconds(100), Reduction(milliseconds(60), milliseconds(30)));
    }
  });
  CHECK(told.steps == 3);
  CHECK(told.step == 103);
  CHECK(told.samples == 48);
  CHECK(told.exposed_ns == 30'000'000);
}

}  // namespace
}  // namespace ddp
