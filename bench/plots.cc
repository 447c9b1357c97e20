#include "bench/plots.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun::bench {
namespace {

constexpr double kWidth = 720;
constexpr double kLeft = 64;    // of the axes
constexpr double kRight = 590;  // what is behind it belongs to labels
constexpr double kTop = 16;
constexpr double kMb = 1 << 20;

const char* ClassOf(Way way) { return way == Way::kDataParallel ? "dp" : "ddp"; }

std::string Open(double height, const std::string& label) {
  return absl::StrFormat("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">\n", kWidth,
                         height, label);
}

std::string Text(double x, double y, const char* look, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y, look, text);
}

std::string Line(double x1, double y1, double x2, double y2, const char* look) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
                         x1, y1, x2, y2, look);
}

// With what a pointer above it shows.
std::string Box(double x, double y, double width, double height, const std::string& look,
                const std::string& title) {
  return absl::StrFormat(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"><title>%s</title>"
      "</rect>\n",
      x, y, std::max(width, 0.5), std::max(height, 0.0), look, title);
}

// A step between ticks such that at most six of them cover `most`: 1, 2 or 5 times a power of ten.
double TickStep(double most) {
  const double raw = std::max(most, 1e-9) / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

// An axis of values from 0 upwards, between two heights.
class ValueAxis {
 public:
  ValueAxis(double most, double bottom)
      : step_(TickStep(most)), top_(std::ceil(most / step_) * step_), bottom_(bottom) {}
  double At(double value) const {
    return top_ <= 0 ? bottom_ : bottom_ - value / top_ * (bottom_ - kTop);
  }
  std::string Grid(double right) const {
    std::string out;
    for (int i = 0; i * step_ <= top_ * 1.0001; ++i) {
      const double y = At(i * step_);
      absl::StrAppend(&out, Line(kLeft, y, right, y, i == 0 ? "axis" : "grid"),
                      Text(kLeft - 8, y + 4, "tick end", absl::StrFormat("%g", i * step_)));
    }
    return out;
  }

 private:
  const double step_, top_, bottom_;
};

std::vector<const Row*> RowsOf(const Report& report, Way way) {
  std::vector<const Row*> rows;
  for (const Row& row : report.rows) {
    if (row.way == way) rows.push_back(&row);
  }
  return rows;
}

int MostRanks(const Report& report) {
  int most = 1;
  for (const Row& row : report.rows) most = std::max(most, row.ranks);
  return most;
}

struct Label {
  double y;
  const char* look;
  std::string text;
};

// Behind the ends of lines, moved apart where they would lie on each other.
std::string EndLabels(std::vector<Label> labels, double x) {
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.y < b.y; });
  std::string out;
  double free = 0;
  for (const Label& label : labels) {
    const double y = std::max(label.y, free);
    free = y + 15;
    absl::StrAppend(&out, Text(x, y + 4, label.look, label.text));
  }
  return out;
}

}  // namespace

std::string ThroughputPlot(const Report& report) {
  constexpr double kBottom = 260;
  const int most_ranks = MostRanks(report);
  const Row* one = FindRow(report, Way::kDistributed, 1);
  const double ideal = one == nullptr ? 0 : one->samples_per_second;
  double most = ideal * most_ranks;
  for (const Row& row : report.rows) most = std::max(most, row.samples_per_second);
  const ValueAxis axis(most, kBottom);
  const auto x = [most_ranks](double ranks) {
    return most_ranks == 1 ? (kLeft + kRight) / 2
                           : kLeft + 30 + (ranks - 1) / (most_ranks - 1) * (kRight - kLeft - 60);
  };
  std::string out = Open(kBottom + 44, "samples a second over the number of ranks");
  // On GPUs there are never more ranks.
  const double devices = report.machine.usable_devices();
  if (most_ranks > devices) {
    const double begin = x(std::max(devices, 1.0));
    absl::StrAppend(&out, Box(begin, kTop, kRight - begin, kBottom - kTop, "beyond", ""),
                    Text(begin + 6, kBottom - 8, "note",
                         absl::StrFormat("more ranks than cores (%g)", devices)));
  }
  absl::StrAppend(&out, axis.Grid(kRight));
  std::vector<Label> labels;
  if (most_ranks > 1) {
    absl::StrAppend(
        &out, Line(x(1), axis.At(ideal), x(most_ranks), axis.At(ideal * most_ranks), "ideal"));
    labels.push_back({axis.At(ideal * most_ranks), "muted", "ideal: N times one"});
  }
  for (const Way way : {Way::kDataParallel, Way::kDistributed}) {
    std::string points, marks;
    for (const Row* row : RowsOf(report, way)) {
      const double at = x(row->ranks), y = axis.At(row->samples_per_second);
      absl::StrAppend(&points, absl::StrFormat("%.1f,%.1f ", at, y));
      absl::StrAppend(&marks, absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" "
                                              "class=\"dot %s\"><title>%s, %d: %.0f samples/s"
                                              "</title></circle>\n",
                                              at, y, ClassOf(way), LongName(way), row->ranks,
                                              row->samples_per_second));
    }
    if (points.empty()) continue;
    absl::StrAppend(&out, "<polyline points=\"", points, "\" class=\"line ", ClassOf(way), "\"/>\n",
                    marks);
    labels.push_back({axis.At(RowsOf(report, way).back()->samples_per_second), ClassOf(way),
                      way == Way::kDataParallel ? "DataParallel" : "Distributed"});
  }
  absl::StrAppend(&out, EndLabels(std::move(labels), kRight + 8));
  for (const Row* row : RowsOf(report, Way::kDistributed)) {
    absl::StrAppend(&out, Text(x(row->ranks), kBottom + 18, "tick mid", absl::StrCat(row->ranks)));
  }
  absl::StrAppend(&out, Text((kLeft + kRight) / 2, kBottom + 38, "muted mid", "ranks"), "</svg>\n");
  return out;
}

std::string MemoryPlot(const Report& report) {
  constexpr double kBottom = 200;
  constexpr int kMostShown = 8;
  const int ranks = MostRanks(report);
  const int shown = std::min(ranks, kMostShown);
  double most = 0;
  for (const Row& row : report.rows) {
    if (row.ranks != ranks) continue;
    for (const uint64_t bytes : row.memory_bytes) most = std::max(most, bytes / kMb);
  }
  const ValueAxis axis(most, kBottom);
  const double group = (kRight - kLeft) / shown, width = std::min(34.0, group / 3);
  std::string out = Open(kBottom + 44, "memory of each device in MiB");
  absl::StrAppend(&out, axis.Grid(kRight));
  for (int device = 0; device < shown; ++device) {
    const double middle = kLeft + group * (device + 0.5);
    for (const Way way : {Way::kDataParallel, Way::kDistributed}) {
      const Row* row = FindRow(report, way, ranks);
      if (row == nullptr || row->memory_bytes.size() <= static_cast<size_t>(device)) continue;
      const double mb = row->memory_bytes[device] / kMb, y = axis.At(mb);
      const double x = way == Way::kDataParallel ? middle - width - 1 : middle + 1;
      absl::StrAppend(&out,
                      Box(x, y, width, kBottom - y, ClassOf(way),
                          absl::StrFormat("%s, device %d: %.1f MiB", LongName(way), device, mb)),
                      Text(x + width / 2, y - 4, "small mid", absl::StrFormat("%.1f", mb)));
    }
    absl::StrAppend(&out,
                    Text(middle, kBottom + 18, "tick mid", absl::StrFormat("device %d", device)));
  }
  absl::StrAppend(&out, EndLabels({{kTop + 8, "dp", "DataParallel"},
                                   {kTop + 26, "ddp", "Distributed"},
                                   {kTop + 44, "muted", "MiB"}},
                                  kRight + 8));
  if (shown < ranks) {
    absl::StrAppend(
        &out, Text(kRight + 8, kBottom, "muted", absl::StrFormat("first %d of %d", shown, ranks)));
  }
  return absl::StrCat(out, "</svg>\n");
}

std::string SweepPlot(const Report& report) {
  constexpr double kBottom = 200;
  const SweepPoint* chosen = RecommendedCap(report);
  if (chosen == nullptr) return "";
  double most = 0;
  for (const SweepPoint& point : report.sweep) most = std::max(most, point.step_ms);
  const ValueAxis axis(most * 1.05, kBottom);
  const double group = (kRight - kLeft) / static_cast<double>(report.sweep.size());
  const double width = std::min(56.0, group * 0.6);
  std::string out = Open(kBottom + 60, "length of a step over bucket_cap_mb");
  absl::StrAppend(&out, axis.Grid(kRight));
  for (size_t i = 0; i < report.sweep.size(); ++i) {
    const SweepPoint& point = report.sweep[i];
    const double middle = kLeft + group * (static_cast<double>(i) + 0.5);
    const double y = axis.At(point.step_ms), waiting = axis.At(point.exposed_ms);
    absl::StrAppend(
        &out,
        Box(middle - width / 2, y, width, kBottom - y, &point == chosen ? "ddp" : "other",
            absl::StrFormat("bucket_cap_mb %s: step %.2f ms", CapsText(point), point.step_ms)),
        Box(middle - width / 2, waiting, width, kBottom - waiting, "exposed",
            absl::StrFormat("exposed communication %.2f ms", point.exposed_ms)),
        Text(middle, y - 5, &point == chosen ? "small mid strong" : "small mid",
             absl::StrFormat("%.2f", point.step_ms)),
        Text(middle, kBottom + 18, &point == chosen ? "tick mid strong" : "tick mid",
             absl::StrCat(CapsText(point), " MB")),
        Text(middle, kBottom + 34, "small mid",
             absl::StrFormat("%d bucket%s", point.buckets, point.buckets == 1 ? "" : "s")));
  }
  absl::StrAppend(&out, EndLabels({{kTop + 8, "ddp", "recommended"},
                                   {kTop + 26, "muted", "step, ms"},
                                   {kTop + 44, "exposed", "exposed part"}},
                                  kRight + 8));
  return absl::StrCat(out, Text((kLeft + kRight) / 2, kBottom + 54, "muted mid", "bucket_cap_mb"),
                      "</svg>\n");
}

}  // namespace ddprun::bench
