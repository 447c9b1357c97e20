#include "examples/train/speed_report.h"

#include <vector>

#include "absl/strings/str_format.h"

namespace train {
namespace {

double MeanCpuUtilisation(std::span<const ddp::RankSteps> ranks) {
  double sum = 0;
  for (const ddp::RankSteps& rank : ranks) sum += rank.cpu_utilisation;
  return sum / static_cast<double>(ranks.size());
}

// Below 0 where some rank has none to tell.
double MeanGpuUtilisation(std::span<const ddp::RankSteps> ranks) {
  double sum = 0;
  for (const ddp::RankSteps& rank : ranks) {
    if (rank.gpu_utilisation < 0) return -1;
    sum += rank.gpu_utilisation;
  }
  return sum / static_cast<double>(ranks.size());
}

std::string UtilisationText(std::span<const ddp::RankSteps> ranks) {
  const double gpu = MeanGpuUtilisation(ranks);
  return absl::StrFormat("%s utilisation %.0f %%", gpu < 0 ? "CPU" : "GPU",
                         100 * (gpu < 0 ? MeanCpuUtilisation(ranks) : gpu));
}

}  // namespace

std::string SpeedText(const ddp::StepMetrics& metrics, std::span<const ddp::RankSteps> ranks) {
  const std::string slow = ddp::SlowRankText(ranks);
  const std::string exposed =
      metrics.knows_communication()
          ? absl::StrFormat("%.1f %%", 100 * metrics.exposed_communication_share())
          : "not measured";
  return absl::StrFormat("%.0f samples/s, exposed communication %s, %s%s%s",
                         metrics.samples_per_second(), exposed, UtilisationText(ranks),
                         slow.empty() ? "" : "; ", slow);
}

void SummariseSpeed(const ddp::StepMetrics& metrics, std::span<const ddp::RankSteps> ranks,
                    Summary& summary) {
  summary.samples_per_second = metrics.samples_per_second();
  summary.step_ms = metrics.step_ms();
  summary.exposed_communication_share =
      metrics.knows_communication() ? metrics.exposed_communication_share() : -1;
  summary.cpu_utilisation = MeanCpuUtilisation(ranks);
  summary.gpu_utilisation = MeanGpuUtilisation(ranks);
  summary.slow_ranks = ddp::SlowRanks(ranks);
}

SpeedReport::SpeedReport(ddp::Communicator& communicator, ddp::Stream stream)
    : rank_(communicator.rank()), epoch_(communicator, stream), run_(communicator, stream) {}

void SpeedReport::BeginEpoch() {
  epoch_.balance.Begin();
  run_.balance.Begin();
}

void SpeedReport::EndEpoch() {
  epoch_.balance.End();
  run_.balance.End();
}

void SpeedReport::BeginStep() {
  epoch_.metrics.BeginStep();
  run_.metrics.BeginStep();
}

void SpeedReport::EndStep(int64_t samples, const ddp::ReductionTimes& reduction) {
  epoch_.metrics.EndStep(samples, reduction);
  run_.metrics.EndStep(samples, reduction);
}

absl::StatusOr<std::string> SpeedReport::EpochText() {
  epoch_.metrics.Collect();
  const absl::StatusOr<std::vector<ddp::RankSteps>> ranks = epoch_.balance.Gather(epoch_.metrics);
  if (!ranks.ok()) return ranks.status();
  const std::string text = SpeedText(epoch_.metrics, *ranks);
  epoch_.metrics.Reset();
  epoch_.balance.Reset();
  return text;
}

absl::Status SpeedReport::Finish(Summary& summary, std::FILE* log) {
  ddp::StepMetrics& metrics = run_.metrics;
  metrics.Collect();
  const absl::StatusOr<std::vector<ddp::RankSteps>> ranks = run_.balance.Gather(metrics);
  if (!ranks.ok()) return ranks.status();
  SummariseSpeed(metrics, *ranks, summary);
  if (rank_ != 0) return absl::OkStatus();
  const std::string advice = ddp::SpeedAdvice(*ranks, rank_, metrics.Warning((*ranks)[0].hosts));
  if (!advice.empty()) std::fprintf(stderr, "train: warning: %s\n", advice.c_str());
  if (metrics.step_ms() > 0) {
    std::fprintf(log, "speed: %s\n", metrics.Summary().c_str());
  }
  return absl::OkStatus();
}

}  // namespace train
