#include "launcher/status/job_overview.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/status/status_rows.h"
#include "launcher/status/status_words.h"
#include "launcher/status/text_table.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kBuckets = 5;
constexpr size_t kMaxBar = 30;
constexpr size_t kMaxNodes = 20;
constexpr size_t kUsualNodes = 3;

struct Bucket {
  std::string label;
  size_t count = 0;
};

// A line for each bucket that is not empty: label, bar, count.
std::vector<std::string> BucketLines(const std::string& title, const std::vector<Bucket>& buckets,
                                     int columns) {
  size_t most = 1;
  int label = 0;
  for (const Bucket& bucket : buckets) {
    most = std::max(most, bucket.count);
    if (bucket.count > 0) label = std::max(label, ColumnsOf(bucket.label));
  }
  std::vector<std::string> lines = {CutToColumns(title, columns)};
  for (const Bucket& bucket : buckets) {
    if (bucket.count == 0) continue;
    const std::string room(static_cast<size_t>(label - ColumnsOf(bucket.label)), ' ');
    const std::string bar(std::max<size_t>(bucket.count * kMaxBar / most, 1), '#');
    lines.push_back(CutToColumns(
        absl::StrCat("  ", room, bucket.label, "  ", CountedNoun(bucket.count, "rank"), "  ", bar),
        columns));
  }
  return lines;
}

std::vector<std::string> StepLines(const std::vector<int64_t>& steps, int64_t least, int64_t most,
                                   int columns) {
  // Unsigned, as the difference of two such numbers may be.
  const uint64_t span = static_cast<uint64_t>(most) - static_cast<uint64_t>(least);
  const uint64_t width = span / kBuckets + 1;
  std::vector<Bucket> buckets(kBuckets);
  for (const int64_t step : steps) {
    ++buckets[(static_cast<uint64_t>(step) - static_cast<uint64_t>(least)) / width].count;
  }
  for (size_t i = 0; i < kBuckets; ++i) {
    const uint64_t offset = std::min(i * width, span);
    const auto at = [least](uint64_t by) {
      return GroupedDigits(static_cast<int64_t>(static_cast<uint64_t>(least) + by));
    };
    const uint64_t last = std::min(offset + width - 1, span);
    buckets[i].label = last == offset ? at(offset) : absl::StrCat(at(offset), "-", at(last));
  }
  return BucketLines("steps:", buckets, columns);
}

std::vector<std::string> SelfLines(const std::vector<double>& times, int columns) {
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  const double width = (*most - *least) / kBuckets;
  std::vector<Bucket> buckets(kBuckets);
  for (const double time : times) {
    const double at = width > 0 ? (time - *least) / width : 0;
    ++buckets[std::min(static_cast<size_t>(at), kBuckets - 1)].count;
  }
  for (size_t i = 0; i < kBuckets; ++i) {
    const double from = *least + static_cast<double>(i) * width;
    const std::string first = TimeText(from), last = TimeText(from + width);
    buckets[i].label = first == last ? first : absl::StrCat(first, " to ", last);
  }
  return BucketLines("self time per step:", buckets, columns);
}

struct NodeSummary {
  size_t node = 0;
  bool is_usual = true;
  TableRow row;
};

std::string RanksCell(const NodeView& node) {
  std::map<std::string, size_t> counts;
  for (const RankView& rank : node.ranks) {
    ++counts[rank.state.empty() ? "unknown" : ShownText(rank.state)];
  }
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& item) {
    absl::StrAppend(out, item.second, " ", item.first);
  });
}

std::string StepsCell(const NodeView& node) {
  std::optional<int64_t> least, most;
  for (const RankView& rank : node.ranks) {
    if (!rank.step) continue;
    least = std::min(least.value_or(*rank.step), *rank.step);
    most = std::max(most.value_or(*rank.step), *rank.step);
  }
  if (!least) return "";
  if (*least == *most) return GroupedDigits(*least);
  return absl::StrCat(GroupedDigits(*least), "-", GroupedDigits(*most));
}

// The mean over the ranks that tell; "" where none does.
std::string GpuCell(const NodeView& node) {
  double sum = 0;
  int count = 0;
  for (const RankView& rank : node.ranks) {
    sum += rank.gpu.value_or(0);
    count += rank.gpu ? 1 : 0;
  }
  return count == 0 ? "" : PercentText(sum / count);
}

std::string MemoryCell(const NodeView& node) {
  if (!node.memory_used) return "";
  const std::string limit =
      node.memory_limit ? absl::StrCat(" of ", MemoryText(*node.memory_limit)) : "";
  return absl::StrCat(MemoryText(*node.memory_used), limit);
}

NodeSummary SummaryOf(const NodeView& node, size_t index, bool has_outlier) {
  const bool runs = node.state == "running";
  const std::string note = NodeNote(node);
  const bool is_old = node.age_s > kOldView_s;
  NodeSummary summary{
      .node = index,
      .is_usual = runs && note.empty() && !is_old && !has_outlier && node.problems.empty(),
      .row = {}};
  summary.row.cells = {{NodeLabelWithAge(node)},
                       {ShownText(node.state), runs ? CellColour::kGood : CellColour::kNotice},
                       {RanksCell(node)},
                       {StepsCell(node)},
                       {GpuCell(node)},
                       {MemoryCell(node)},
                       {note}};
  return summary;
}

// Of the nodes beyond the first `shown`, the unusual of which stand first.
std::string OthersText(size_t all, size_t unusual, size_t shown) {
  const std::string others = absl::StrCat("and ", CountedNoun(all - shown, "node"), " more, ");
  if (unusual > shown) {
    const std::string count = GroupedDigits(static_cast<int64_t>(unusual - shown));
    return absl::StrCat(others, count, " of them unusual");
  }
  if (unusual == shown) return absl::StrCat(others, "none of them unusual");
  return absl::StrCat(others, "all like ", unusual == 0 ? "these" : "the last");
}

}  // namespace

std::vector<std::string> SpreadLines(const JobView& job, int columns) {
  std::vector<int64_t> steps;
  std::vector<double> times;
  for (const NodeView& node : job.nodes) {
    for (const RankView& rank : node.ranks) {
      if (rank.step) steps.push_back(*rank.step);
      if (rank.self_s && std::isfinite(*rank.self_s)) times.push_back(*rank.self_s);
    }
  }
  if (!steps.empty()) {
    const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
    if (static_cast<uint64_t>(*most) - static_cast<uint64_t>(*least) > 1) {
      return StepLines(steps, *least, *most, columns);
    }
  }
  if (times.empty()) return {};
  return SelfLines(times, columns);
}

std::vector<std::string> NodeLines(const JobView& job, const std::vector<RankPlace>& worst_first,
                                   int columns, bool allows_colours) {
  std::vector<bool> has_outlier(job.nodes.size(), false);
  for (const RankPlace& place : worst_first) {
    if (place.stands_out) has_outlier[place.node] = true;
  }
  std::vector<NodeSummary> all;
  for (size_t i = 0; i < job.nodes.size(); ++i) {
    all.push_back(SummaryOf(job.nodes[i], i, has_outlier[i]));
  }
  std::stable_sort(all.begin(), all.end(), [](const NodeSummary& a, const NodeSummary& b) {
    return !a.is_usual && b.is_usual;
  });
  const size_t unusual = static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [](const NodeSummary& summary) { return !summary.is_usual; }));
  const size_t shown =
      all.size() <= kMaxNodes ? all.size() : std::min(unusual + kUsualNodes, kMaxNodes);
  TextTable table{.columns = {{.header = "node", .importance = 0},
                              {.header = "state", .importance = 1},
                              {.header = "ranks", .importance = 2},
                              {.header = "step", .importance = 3, .is_number = true},
                              {.header = "GPU", .importance = 5, .is_number = true},
                              {.header = "memory", .importance = 6, .is_number = true},
                              {.header = "note", .importance = 4, .is_stretching = true}},
                  .rows = {}};
  for (size_t i = 0; i < shown; ++i) table.rows.push_back(std::move(all[i].row));
  std::vector<std::string> lines = TableLines(table, columns, allows_colours);
  if (shown < all.size())
    lines.push_back(CutToColumns(OthersText(all.size(), unusual, shown), columns));
  return lines;
}

}  // namespace ddprun::launcher
