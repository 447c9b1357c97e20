// Which metrics there are: name, type, meaning, and where the value comes from. [pure]
//
// tools/reference writes the tables of docs/reference/metrics.md from them.
#ifndef DDPRUN_LAUNCHER_METRICS_METRIC_SERIES_H_
#define DDPRUN_LAUNCHER_METRICS_METRIC_SERIES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

enum class MetricType { kGauge, kCounter };

// What is said of a metric before its samples.
struct Metric {
  const char* name;  // Prometheus' conventions; a counter's ends in _total
  MetricType type;
  const char* help;  // one line without quotes and backslashes
};

// One sample for each thing of a sort. A value is its text; empty: not known, and no sample.
template <typename View>
struct Series {
  Metric metric;
  std::string (*value)(const View& view);
};

// Several samples of the job, told apart by the label `kind`, whose values are from a fixed list.
struct KindSeries {
  Metric metric;
  std::vector<std::pair<const char*, std::string>> (*values)(const JobView& job);
};

absl::Span<const KindSeries> JobKindSeries();
absl::Span<const Series<JobView>> JobSeries();
absl::Span<const Series<NodeView>> NodeSeries();
absl::Span<const Series<RankView>> RankSeries();
absl::Span<const Series<GpuView>> GpuSeries();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_METRICS_METRIC_SERIES_H_
