#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "bench/caps.h"
#include "bench/median.h"
#include "bench/training.h"

namespace ddprun::bench {
namespace {

constexpr int kFewestSteps = 5, kMostSteps = 400;
constexpr double kMiB = 1 << 20;
// The last is PyTorch's default: two buckets here, as the first one is of 1 MiB.
constexpr double kCaps[] = {0.25, 0.5, 1, 2, 4, 25};

// As many steps as fit into the time, the same on all ranks.
absl::StatusOr<int> StepsWithin(double seconds, double mean_ms, Training& training) {
  const absl::StatusOr<double> slowest = training.Largest(mean_ms);
  if (!slowest.ok()) return slowest.status();
  const double steps = 1000 * seconds / std::max(*slowest, 1e-3);
  return static_cast<int>(std::clamp<double>(steps, kFewestSteps, kMostSteps));
}

std::vector<double> Column(const std::vector<StepRecord>& steps, double StepRecord::*member) {
  std::vector<double> values;
  for (const StepRecord& step : steps) values.push_back(step.*member);
  return values;
}

}  // namespace

size_t TypicalStep(const std::vector<StepRecord>& steps, const Row& row) {
  const auto distance = [&row](const StepRecord& step) {
    return std::abs(step.exposed_ms - row.exposed_ms) + std::abs(step.step_ms - row.step_ms);
  };
  const auto nearest = std::min_element(
      steps.begin(), steps.end(),
      [&](const StepRecord& a, const StepRecord& b) { return distance(a) < distance(b); });
  return static_cast<size_t>(nearest - steps.begin());
}

double HalvesApart(const std::vector<double>& step_ms) {
  const auto middle = step_ms.begin() + static_cast<ptrdiff_t>(step_ms.size() / 2);
  return Apart(Median({step_ms.begin(), middle}), Median({middle, step_ms.end()}));
}

PhaseClock::PhaseClock(ddp::internal::DeviceTimer* timer, ddp::Stream stream)
    : timer_(timer), stream_(stream) {
  EndPhase("");
}

void PhaseClock::EndPhase(const char* name) {
  ends_.push_back({name, Clock::now(), timer_ == nullptr ? nullptr : timer_->Mark(stream_)});
}

absl::Status PhaseClock::Fill(StepRecord& record) {
  for (End& end : ends_) {
    if (timer_ == nullptr) break;
    const auto time = end.moment == nullptr ? std::nullopt : end.moment->Time();
    if (!time) return absl::UnavailableError("the GPU does not tell when a step's phases ended");
    end.time = *time;
  }
  for (size_t i = 1; i < ends_.size(); ++i) {
    record.step_ms = At(ends_[i].time);
    record.phases.push_back({ends_[i].phase, At(ends_[i - 1].time), record.step_ms});
  }
  return absl::OkStatus();
}

double PhaseClock::At(Clock::time_point time) const {
  return std::chrono::duration<double, std::milli>(time - ends_.front().time).count();
}

absl::StatusOr<Report> Measure(Training& training, double seconds) {
  std::vector<double> warm_ms;
  for (int i = 0; i < kLossSteps; ++i) {
    const absl::StatusOr<StepRecord> step = training.Step();
    if (!step.ok()) return step.status();
    warm_ms.push_back(step->step_ms);
  }
  const absl::StatusOr<double> loss = training.Loss();
  if (!loss.ok()) return loss.status();
  const absl::StatusOr<int> count = StepsWithin(seconds, Median(warm_ms), training);
  if (!count.ok()) return count.status();
  std::vector<StepRecord> steps;
  for (int i = 0; i < *count; ++i) {
    absl::StatusOr<StepRecord> step = training.Step();
    if (!step.ok()) return step.status();
    steps.push_back(*std::move(step));
  }
  Row row{.steps = *count,
          .step_ms = Median(Column(steps, &StepRecord::step_ms)),
          .communication_ms = Median(Column(steps, &StepRecord::communication_ms)),
          .exposed_ms = Median(Column(steps, &StepRecord::exposed_ms)),
          .final_loss = *loss};
  const size_t shown = TypicalStep(steps, row);  // of this rank, as its medians are by now
  if (absl::Status status = training.Complete(row); !status.ok()) return status;
  row.samples_per_second = 1000 * kGlobalBatch / row.step_ms;
  const StepRecord& typical = steps[shown];
  Timeline timeline{.way = row.way,
                    .ranks = row.ranks,
                    .step = static_cast<int64_t>(shown) + 1,
                    .step_ms = typical.step_ms,
                    .exposed_ms = typical.exposed_ms,
                    .backward_end_ms = typical.backward_end_ms,
                    .phases = typical.phases,
                    .reductions = typical.reductions};
  Report report;
  report.rows.push_back(std::move(row));
  report.timelines.push_back(std::move(timeline));
  return report;
}

absl::StatusOr<Report> MeasureSweep(ddp::Communicator& group, int gpu, double seconds) {
  std::vector<size_t> counts;
  for (const MlpParameter& parameter : InitialParameters(kShape)) {
    counts.push_back(parameter.values.size());
  }
  const std::vector<std::vector<double>> layouts =
      CapsByLayout({std::begin(kCaps), std::end(kCaps)}, counts);
  std::vector<std::unique_ptr<DistributedTraining>> trainings;
  std::vector<std::vector<StepRecord>> steps(layouts.size());
  for (const std::vector<double>& caps : layouts) {
    auto training =
        DistributedTraining::Create(group, gpu, static_cast<size_t>(caps.back() * kMiB));
    if (!training.ok()) return training.status();
    trainings.push_back(*std::move(training));
  }
  // A step of each in turns, so that what else the machine does meets all of them alike.
  const auto turn = [&](bool is_kept) -> absl::StatusOr<double> {
    double all_ms = 0;
    for (size_t i = 0; i < layouts.size(); ++i) {
      absl::StatusOr<StepRecord> step = trainings[i]->Step();
      if (!step.ok()) return step.status();
      all_ms += step->step_ms;
      if (is_kept) steps[i].push_back(*std::move(step));
    }
    return all_ms;
  };
  double last_ms = 0;
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<double> all_ms = turn(false);
    if (!all_ms.ok()) return all_ms.status();
    last_ms = *all_ms;
  }
  const absl::StatusOr<int> count = StepsWithin(seconds, last_ms, *trainings[0]);
  if (!count.ok()) return count.status();
  for (int i = 0; i < *count; ++i) {
    if (absl::Status status = turn(true).status(); !status.ok()) return status;
  }
  Report report;
  report.sweep_ranks = group.world_size();
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::vector<double>& caps = layouts[i];
    const std::vector<double> step_ms = Column(steps[i], &StepRecord::step_ms);
    report.sweep.push_back({.cap_mb = caps.back(),
                            .same_mb = {caps.begin(), caps.end() - 1},
                            .buckets = trainings[i]->bucket_count(),
                            .step_ms = Median(step_ms),
                            .exposed_ms = Median(Column(steps[i], &StepRecord::exposed_ms)),
                            .halves_apart = HalvesApart(step_ms)});
  }
  return report;
}

}  // namespace ddprun::bench
