#include "examples/train/speed_report.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/thread_group.h"

namespace train {
namespace {

using ddp::RankSteps;
using std::chrono::milliseconds;

ddp::ReductionTimes Exposed(milliseconds time) {
  const ddp::ReductionTimes::TimePoint start{std::chrono::hours(1)};
  return {.backward_end = start, .communication_end = start + time, .communication = time};
}

// One of four ranks' steps of 40 ms and 100 images, a quarter of them waiting for others.
std::unique_ptr<ddp::StepMetrics> Steps() {
  auto metrics = std::make_unique<ddp::StepMetrics>(4);
  for (const int exposed : {10, 6, 14}) {
    metrics->Add(100, milliseconds(40), Exposed(milliseconds(exposed)));  // no limit: a figure
  }
  return metrics;
}

// Four ranks with a core each, which they use to nine tenths.
std::vector<RankSteps> Ranks() {
  const RankSteps rank{.step_ms = 40,
                       .exposed_ms = 10,
                       .step_wait_ms = 0,
                       .communication_wait_ms = 0,
                       .cpu_utilisation = 0.9,
                       .cores = 4,
                       .ranks_on_cores = 4};
  return std::vector<RankSteps>(4, rank);
}

TEST_CASE("speed report: of ranks that are alike the speed and the shares are told, and no more") {
  CHECK(SpeedText(*Steps(), Ranks()) ==
        "10000 samples/s, exposed communication 25.0 %, CPU utilisation 90 %");
  Summary summary;
  SummariseSpeed(*Steps(), Ranks(), summary);
  CHECK(summary.samples_per_second == doctest::Approx(10000));
  CHECK(summary.step_ms == doctest::Approx(40));
  CHECK(summary.exposed_communication_share == doctest::Approx(0.25));
  CHECK(summary.cpu_utilisation == doctest::Approx(0.9));
  CHECK(summary.gpu_utilisation < 0);
  CHECK(summary.slow_ranks.empty());
}

TEST_CASE("speed report: the slow rank is named by the time that it takes by itself") {
  std::vector<RankSteps> ranks = Ranks();
  ranks[2].exposed_ms = 1.5;  // a step of 40 ms as all others, and hardly any waiting in it
  CHECK(SpeedText(*Steps(), ranks) ==
        "10000 samples/s, exposed communication 25.0 %, CPU utilisation 90 %; rank 2 is slow: it "
        "takes 38.50 ms a step by itself, the others 30.00 ms; they wait for it");
  Summary summary;
  SummariseSpeed(*Steps(), ranks, summary);
  CHECK(summary.slow_ranks == std::vector<int>{2});
}

TEST_CASE("speed report: what a slow rank waited for a CPU core is told of it") {
  std::vector<RankSteps> ranks = Ranks();
  ranks[2].exposed_ms = 1.5;
  ranks[2].step_wait_ms = 8;
  const std::string text = SpeedText(*Steps(), ranks);
  CHECK(text ==
        Contains("38.50 ms a step by itself, up to 8.00 ms of it waiting for a CPU core, the "
                 "others 30.00 ms"));
}

TEST_CASE("speed report: ranks that take turns on too few cores are not slow for it") {
  std::vector<RankSteps> ranks = Ranks();
  for (RankSteps& rank : ranks) rank.cores = 2;
  ranks[2].exposed_ms = 1.5;
  ranks[2].step_wait_ms = 8;
  CHECK(SpeedText(*Steps(), ranks) ==
        "10000 samples/s, exposed communication 25.0 %, CPU utilisation 90 %");
}

TEST_CASE("speed report: utilisation is the ranks' mean, of their GPUs where all tell") {
  std::vector<RankSteps> ranks = Ranks();
  ranks[0].cpu_utilisation = 0.1;
  const auto ends_with = [&ranks](const std::string& end) {
    return SpeedText(*Steps(), ranks).ends_with(end);
  };
  CHECK(ends_with(", CPU utilisation 70 %"));
  for (RankSteps& rank : ranks) rank.gpu_utilisation = 0.5;
  ranks[1].gpu_utilisation = 1;
  CHECK(ends_with(", GPU utilisation 62 %"));
  ranks[3].gpu_utilisation = -1;
  CHECK(ends_with(", CPU utilisation 70 %"));
}

TEST_CASE("speed report: an epoch's line is of that epoch, the end of the whole run") {
  std::string logs[2];
  ddprun::testing::ThreadGroup group(2);
  group.Run([&logs](ddp::Communicator& communicator) {
    SpeedReport report(communicator, nullptr);
    const auto epoch = [&report](int steps) {
      report.BeginEpoch();
      for (int i = 0; i < steps; ++i) {
        report.BeginStep();
        report.EndStep(10, Exposed(std::chrono::hours(i)));
      }
      report.EndEpoch();
      return report.EpochText().value_or("no text");
    };
    CHECK(epoch(1) == Contains(" samples/s, exposed communication 0.0 %, "));
    CHECK(epoch(2) == Contains(" samples/s, exposed communication 100.0 %, "));
    CHECK(epoch(0).find("0 samples/s, exposed communication 0.0 %, ") == 0);

    Summary summary;
    std::FILE* log = std::tmpfile();
    REQUIRE(log != nullptr);
    CHECK(report.Finish(summary, log).ok());
    CHECK(summary.samples_per_second > 0);
    CHECK(summary.exposed_communication_share == 1);
    std::rewind(log);
    for (int c; (c = std::fgetc(log)) != EOF;) {
      logs[communicator.rank()].push_back(static_cast<char>(c));
    }
    std::fclose(log);
  });
  CHECK(logs[0].find("speed: ") == 0);
  CHECK(logs[0].ends_with(" (100.0 %)\n"));
  CHECK(logs[0].find('\n') == logs[0].size() - 1);
  CHECK(logs[1].empty());
}

}  // namespace
}  // namespace train
