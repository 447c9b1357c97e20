#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/plots.h"

namespace ddprun::bench {
namespace {

constexpr double kWidth = 720, kLeft = 104, kRight = 704;
constexpr double kLane = 26, kLaneGap = 6;

// Phases in which nothing is computed.
bool IsExposed(std::string_view phase) {
  return phase == "replicate" || phase == "gather" || phase == "reduce" || phase == "wait";
}

class Lanes {
 public:
  explicit Lanes(double most_ms) : most_ms_(most_ms) {}

  double At(double ms) const { return kLeft + ms / most_ms_ * (kRight - kLeft); }
  void BeginLane(const std::string& name) {
    y_ += kLane + kLaneGap;
    Text(kLeft - 10, y_ + kLane / 2 + 4, "tick end", name);
  }
  void Heading(const std::string& text) {
    y_ += kLane + 8;
    Text(kLeft, y_ + kLane - 4, "strong", text);
    y_ += 4;
  }
  // A piece of the lane; named inside where there is room for its name.
  void Piece(const Span& span, const std::string& look, const std::string& shown) {
    if (span.end_ms <= span.begin_ms) return;
    const double x = At(span.begin_ms), width = At(span.end_ms) - x;
    absl::StrAppend(&out_,
                    absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%g\" "
                                    "class=\"piece %s\"><title>%s: %.2f ms, from %.2f to %.2f"
                                    "</title></rect>\n",
                                    x, y_, std::max(width, 0.8), kLane, look, span.name,
                                    span.end_ms - span.begin_ms, span.begin_ms, span.end_ms));
    constexpr double kLetter = 6.6;
    if (width > kLetter * static_cast<double>(shown.size()) + 6) {
      Text(x + width / 2, y_ + kLane / 2 + 4, absl::StrCat("inside mid ", look).c_str(), shown);
    }
  }
  // Through the last `lanes` lanes.
  void Mark(double ms, int lanes, const std::string& text) {
    const double from = y_ + kLane - lanes * (kLane + kLaneGap);
    absl::StrAppend(&out_, absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                                           "class=\"mark\"/>\n",
                                           At(ms), from, At(ms), y_ + kLane + 4));
    Text(At(ms) - 4, y_ + kLane + 14, "small end", text);
    y_ += 12;
  }
  std::string Finish() {
    const double bottom = y_ + kLane + 14;
    const double step = std::pow(10, std::floor(std::log10(most_ms_)));
    const double tick = most_ms_ / step < 2 ? step / 5 : most_ms_ / step < 5 ? step / 2 : step;
    std::string axis;
    for (int i = 0; i * tick <= most_ms_; ++i) {
      axis += absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"tick mid\">%g%s</text>\n",
                              At(i * tick), bottom + 14, i * tick,
                              (i + 1) * tick > most_ms_ ? " ms" : "");
    }
    return absl::StrFormat(
        "<svg viewBox=\"0 0 %g %.0f\" role=\"img\" aria-label=\"time line of one step\">\n"
        "<line x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\" class=\"axis\"/>\n%s%s</svg>\n",
        kWidth, bottom + 22, kLeft, bottom, kRight, bottom, axis, out_);
  }

 private:
  void Text(double x, double y, const char* look, const std::string& text) {
    absl::StrAppend(&out_, absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n",
                                           x, y, look, text));
  }

  const double most_ms_;
  double y_ = -kLane;
  std::string out_;
};

void DrawPhases(const Timeline& timeline, Lanes& lanes) {
  for (const Span& phase : timeline.phases) {
    const std::string look = IsExposed(phase.name)      ? "exposed"
                             : phase.name == "backward" ? "compute deep"
                                                        : "compute";
    lanes.Piece(phase, look, phase.name);
  }
}

// What of each reduction computation hid, and what it did not.
void DrawReductions(const Timeline& timeline, Lanes& lanes) {
  const double end = timeline.backward_end_ms;
  int number = 0;
  for (const Span& bucket : timeline.reductions) {
    const std::string shown = absl::StrCat(++number);
    lanes.Piece({bucket.name + ", hidden", bucket.begin_ms, std::min(bucket.end_ms, end)}, "hidden",
                shown);
    lanes.Piece({bucket.name + ", exposed", std::max(bucket.begin_ms, end), bucket.end_ms},
                "exposed", bucket.begin_ms >= end ? shown : "");
  }
}

}  // namespace

std::string TimelinePlot(const Report& report) {
  const int ranks = ShownRanks(report);
  std::vector<const Timeline*> shown;
  double most_ms = 0;
  for (const Timeline& timeline : report.timelines) {
    if (timeline.ranks != ranks || timeline.step_ms <= 0) continue;
    shown.push_back(&timeline);
    most_ms = std::max(most_ms, timeline.step_ms);
  }
  if (shown.empty()) return "";
  Lanes lanes(most_ms);
  for (const Timeline* timeline : shown) {
    const bool is_dp = timeline->way == Way::kDataParallel;
    lanes.Heading(
        absl::StrFormat("%s, %d %s, step %d: %.2f ms, %.1f %% exposed", LongName(timeline->way),
                        ranks, is_dp ? "replicas" : "ranks: rank 0", timeline->step,
                        timeline->step_ms, 100 * timeline->exposed_ms / timeline->step_ms));
    lanes.BeginLane(is_dp ? "all devices" : "computation");
    DrawPhases(*timeline, lanes);
    if (timeline->reductions.empty()) continue;
    lanes.BeginLane("reductions");
    DrawReductions(*timeline, lanes);
    lanes.Mark(timeline->backward_end_ms, 2, "backward ends");
  }
  return lanes.Finish();
}

}  // namespace ddprun::bench
