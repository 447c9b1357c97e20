#include "launcher/metrics/metrics_text.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "launcher/metrics/metric_series.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxLabelBytes = 128;

// Fit for a label, but for the escapes.
std::string LabelText(std::string_view text) {
  // No more than could be kept: a character has four bytes at most.
  std::string plain = ReplaceControl(text.substr(0, CharacterStart(text, 4 * kMaxLabelBytes)));
  plain.resize(CharacterStart(plain, kMaxLabelBytes));
  return plain;
}

std::string Label(const char* name, const std::string& text) {
  return absl::StrCat(name, "=\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}),
                      "\"");
}

// Something of which samples are given, and its labels.
template <typename View>
struct Labelled {
  const View* view;
  std::string labels;
};

class Writer {
 public:
  explicit Writer(bool is_open_metrics) : is_open_metrics_(is_open_metrics) {}

  // The samples of a metric stand together, below its name.
  template <typename View>
  void Add(absl::Span<const Series<View>> all, const std::vector<Labelled<View>>& things) {
    for (const Series<View>& series : all) {
      bool is_first = true;
      for (const Labelled<View>& thing : things) {
        Sample(series.metric, thing.labels, series.value(*thing.view), is_first);
      }
    }
  }

  void AddKinds(const JobView& job, const std::string& labels) {
    for (const KindSeries& series : JobKindSeries()) {
      bool is_first = true;
      for (const auto& [kind, value] : series.values(job)) {
        Sample(series.metric, absl::StrCat(labels, ",", Label("kind", kind)), value, is_first);
      }
    }
  }

  std::string Finish() && {
    if (is_open_metrics_) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  void Sample(const Metric& metric, const std::string& labels, const std::string& value,
              bool& is_first) {
    if (value.empty()) return;
    if (is_first) Describe(metric);
    is_first = false;
    absl::StrAppend(&text_, metric.name, "{", labels, "} ", value, "\n");
  }

  void Describe(const Metric& metric) {
    const bool is_counter = metric.type == MetricType::kCounter;
    absl::string_view name = metric.name;
    // There a counter's name is that of its sample without the suffix.
    if (is_counter && is_open_metrics_) name = absl::StripSuffix(name, "_total");
    absl::StrAppend(&text_, "# HELP ", name, " ", metric.help, "\n# TYPE ", name,
                    is_counter ? " counter\n" : " gauge\n");
  }

  const bool is_open_metrics_;
  std::string text_;
};

// The label of each node, in their order: its host, and its id as well where several agents have
// that name.
std::vector<std::string> NodeLabels(const JobView& job) {
  std::map<std::string, int> seen;
  for (const NodeView& node : job.nodes) ++seen[LabelText(node.host)];
  std::vector<std::string> labels;
  for (const NodeView& node : job.nodes) {
    std::string label = LabelText(node.host);
    if (seen[label] > 1) {
      std::string id = LabelText(node.id);
      id.resize(CharacterStart(id, 32));
      label.resize(CharacterStart(label, kMaxLabelBytes - id.size() - 1));
      absl::StrAppend(&label, "/", id);
    }
    labels.push_back(label);
  }
  return labels;
}

// The views of `all` whose number is a place and was not seen before.
template <typename View>
void AddNumbered(const std::vector<View>& all, int View::*number, const char* name,
                 const std::string& labels, std::vector<Labelled<View>>& things) {
  std::set<int> seen;
  for (const View& view : all) {
    if (view.*number < 0 || !seen.insert(view.*number).second) continue;
    things.push_back({&view, absl::StrCat(labels, ",", name, "=\"", view.*number, "\"")});
  }
}

}  // namespace

std::string MetricsText(const JobView& job, std::string_view own_node_id,
                        const MetricsOptions& options) {
  const std::string labels = Label("run_id", LabelText(job.run_id));
  const std::vector<std::string> names = NodeLabels(job);
  std::vector<Labelled<NodeView>> nodes;
  std::vector<Labelled<RankView>> ranks;
  std::vector<Labelled<GpuView>> gpus;
  std::set<std::string> seen;
  bool has_own = false;
  for (size_t i = 0; i < job.nodes.size(); ++i) {
    const NodeView& node = job.nodes[i];
    const bool is_own = node.id == own_node_id && !has_own;
    if ((!is_own && !options.has_all_nodes) || !seen.insert(names[i]).second) continue;
    const std::string of_node = absl::StrCat(labels, ",", Label("node", names[i]));
    nodes.push_back({&node, of_node});
    if (!is_own) continue;
    has_own = true;
    AddNumbered(node.ranks, &RankView::rank, "rank", of_node, ranks);
    AddNumbered(node.gpus, &GpuView::index, "gpu", of_node, gpus);
  }
  Writer writer(options.is_open_metrics);
  writer.AddKinds(job, labels);
  writer.Add(JobSeries(), std::vector<Labelled<JobView>>{{&job, labels}});
  writer.Add(NodeSeries(), nodes);
  writer.Add(RankSeries(), ranks);
  writer.Add(GpuSeries(), gpus);
  return std::move(writer).Finish();
}

std::string_view MetricsContentType(bool is_open_metrics) {
  return is_open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                         : "text/plain; version=0.0.4; charset=utf-8";
}

bool AcceptsOpenMetrics(std::string_view accept) {
  for (const absl::string_view range :
       absl::StrSplit(absl::string_view(accept.data(), accept.size()), ',')) {
    bool is_named = false, is_version = true, is_refused = false;
    for (absl::string_view part : absl::StrSplit(range, ';')) {
      part = absl::StripAsciiWhitespace(part);
      if (absl::EqualsIgnoreCase(part, "application/openmetrics-text")) is_named = true;
      if (absl::StartsWithIgnoreCase(part, "version=")) is_version = part.substr(8) == "1.0.0";
      if (absl::EqualsIgnoreCase(part, "q=0")) is_refused = true;
    }
    if (is_named && is_version && !is_refused) return true;
  }
  return false;
}

}  // namespace ddprun::launcher
