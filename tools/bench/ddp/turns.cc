#include "tools/bench/ddp/turns.h"

#include <algorithm>
#include <chrono>

#include "bench/median.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBlockMs = 25;  // long beside the barrier before it
constexpr int kMostSteps = 50;   // of a block
constexpr int kFewestTurns = 3, kMostTurns = 51;

// Milliseconds for a step of `way`, of a block of so many.
absl::StatusOr<double> TimeBlock(ddp::Communicator& group, const Way& way, int steps) {
  if (absl::Status status = group.Barrier()->Wait(); !status.ok()) return status;
  const auto begin = Clock::now();
  for (int i = 0; i < steps; ++i) {
    if (absl::Status status = way.step(); !status.ok()) return status;
  }
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / steps;
}

absl::Status TakeSlowest(ddp::Communicator& group, std::vector<double>& values) {
  return group.AllReduce(values.data(), values.size(), ddp::DType::kFloat64, ddp::ReduceOp::kMax)
      ->Wait();
}

}  // namespace

absl::Status MeasureInTurns(ddp::Communicator& group, double seconds, std::vector<Way>& ways) {
  // The first step of each touches its memory, the second one tells how long a step is.
  std::vector<double> step_ms(ways.size());
  for (int warm = 0; warm < 2; ++warm) {
    for (size_t i = 0; i < ways.size(); ++i) {
      const absl::StatusOr<double> ms = TimeBlock(group, ways[i], 1);
      if (!ms.ok()) return ms.status();
      step_ms[i] = *ms;
    }
  }
  if (absl::Status status = TakeSlowest(group, step_ms); !status.ok()) return status;
  std::vector<int> steps;
  double turn_ms = 0;
  for (const double ms : step_ms) {
    steps.push_back(static_cast<int>(std::clamp<double>(kBlockMs / ms, 1, kMostSteps)));
    turn_ms += ms * steps.back();
  }
  int turns =
      static_cast<int>(std::clamp<double>(1000 * seconds / turn_ms, kFewestTurns, kMostTurns));
  // So that each way comes first, and last, as often as any other.
  while (turns % static_cast<int>(ways.size()) != 0) ++turns;
  std::vector<std::vector<double>> found(ways.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t place = 0; place < ways.size(); ++place) {
      const size_t i = (place + static_cast<size_t>(turn)) % ways.size();
      const absl::StatusOr<double> ms = TimeBlock(group, ways[i], steps[i]);
      if (!ms.ok()) return ms.status();
      found[i].push_back(*ms);
    }
  }
  for (size_t i = 0; i < ways.size(); ++i) {
    if (absl::Status status = TakeSlowest(group, found[i]); !status.ok()) return status;
    ways[i].ms = Median(found[i]);
    std::vector<double> more;
    for (size_t turn = 0; turn < found[i].size(); ++turn) {
      more.push_back(found[i][turn] - found[0][turn]);
    }
    ways[i].more_ms = Median(more);
  }
  return absl::OkStatus();
}

}  // namespace ddprun::bench
