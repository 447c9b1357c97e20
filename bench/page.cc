#include "bench/page.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/plots.h"

namespace ddprun::bench {
namespace {

constexpr char kStyle[] = R"(
:root { color-scheme: light dark; --page: #ffffff; --text: #1c1e21; --muted: #62676e; --grid: #e3e5e8;
  --axis: #9aa0a6; --dp: #b8620a; --ddp: #1f62c4; --exposed: #c62f3e; --hidden: #12857a;
  --compute: #dfe3e8; --deep: #c3cad3; --other: #b9c0c9; --beyond: #f3f1ea; --inside: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --text: #e8eaed; --muted: #a2a8b0;
  --grid: #2b3036; --axis: #6a717a; --dp: #f0a04b; --ddp: #6ea8ff; --exposed: #ff6b74;
  --hidden: #3cc0b0; --compute: #333941; --deep: #4a525d; --other: #56606c; --beyond: #21252a;
  --inside: #15181c; } }
body { background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 900px; padding: 24px 20px 60px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 4px; }
p { margin: 6px 0; } .muted-text { color: var(--muted); font-size: 14px; }
.verdict { border-left: 4px solid var(--ddp); padding: 4px 0 4px 14px; margin: 18px 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; width: 100%; }
th, td { text-align: right; padding: 5px 9px; border-bottom: 1px solid var(--grid);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; } td.bad { color: var(--exposed); font-weight: 600; }
svg { width: 100%; height: auto; display: block; margin: 10px 0 4px; }
text { fill: var(--text); font: 13px system-ui, sans-serif; }
.tick, .small, .muted, .note { fill: var(--muted); } .tick, .small, .note { font-size: 12px; }
.end { text-anchor: end; } .mid { text-anchor: middle; } .strong { font-weight: 600; fill: var(--text); }
.grid { stroke: var(--grid); } .axis { stroke: var(--axis); }
.mark { stroke: var(--text); stroke-dasharray: 3 3; }
.ideal { stroke: var(--axis); stroke-width: 1.5; stroke-dasharray: 6 5; } .beyond { fill: var(--beyond); }
.dp { fill: var(--dp); } .ddp { fill: var(--ddp); } .other { fill: var(--other); }
.line { fill: none; stroke-width: 2.5; } .line.dp { stroke: var(--dp); } .line.ddp { stroke: var(--ddp); }
.dot { stroke: var(--page); stroke-width: 1.5; }
.exposed { fill: var(--exposed); } .hidden { fill: var(--hidden); } .compute { fill: var(--compute); }
.compute.deep { fill: var(--deep); } .piece { stroke: var(--page); stroke-width: 1; }
.inside { fill: var(--inside); font-size: 12px; } .inside.compute { fill: var(--text); }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin: 0 4px 0 8px; }
.entry { white-space: nowrap; }
)";

// A square and its words, which stay on one line.
std::string Key(const char* color, const char* text) {
  return absl::StrFormat(
      " <span class=\"entry\"><span class=\"key\" style=\"background: var(--%s)\"></span>%s</span>",
      color, text);
}

std::string Cell(const std::string& text) { return absl::StrCat("<td>", text, "</td>"); }

std::string Table(const Report& report) {
  std::string out =
      "<div class=\"wide\"><table>\n<tr><th>way</th><th>ranks</th><th>samples/s</th>"
      "<th>speed-up</th><th>step<br>ms</th><th>communi-<br>cation ms</th>"
      "<th>exposed<br>share</th><th>moved<br>MiB/step</th><th>fullest<br>device MiB</th>"
      "<th>imbalance</th></tr>\n";
  constexpr double kMb = 1 << 20;
  for (const Row& row : report.rows) {
    uint64_t most = 0;
    for (const uint64_t bytes : row.memory_bytes) most = std::max(most, bytes);
    absl::StrAppend(
        &out, "<tr>", Cell(row.way == Way::kDataParallel ? "DataParallel" : "Distributed"),
        Cell(absl::StrCat(row.ranks)), Cell(absl::StrFormat("%.0f", row.samples_per_second)),
        Cell(absl::StrFormat("%.2f of %d", Speedup(report, row), row.ranks)),
        Cell(absl::StrFormat("%.2f", row.step_ms)),
        Cell(absl::StrFormat("%.2f", row.communication_ms)),
        absl::StrFormat("<td%s>%.1f %%</td>",
                        row.exposed_share() > kExposedLimit ? " class=\"bad\"" : "",
                        100 * row.exposed_share()),
        Cell(absl::StrFormat("%.1f", static_cast<double>(row.bytes_moved) / kMb)),
        Cell(absl::StrFormat("%.1f", static_cast<double>(most) / kMb)),
        Cell(absl::StrFormat("%.1f %%", 100 * MemoryImbalance(row))), "</tr>\n");
  }
  return absl::StrCat(out, "</table></div>\n");
}

std::string Figure(const char* title, const std::string& text, const std::string& plot) {
  if (plot.empty()) return "";
  return absl::StrCat("<h2>", title, "</h2>\n<p class=\"muted-text\">", text, "</p>\n", plot);
}

std::string SweepText(const Report& report) {
  const SweepPoint* chosen = RecommendedCap(report);
  if (chosen == nullptr) return "";
  return absl::StrFormat(
      "Recommended for %d ranks here: %g. It is the largest value whose step is at most 2 %% "
      "longer "
      "than the shortest. Small buckets start early and cost more starts; a large one starts "
      "when backward is nearly over and hides little. Values that give the same buckets are "
      "measured "
      "once, and stand together.",
      report.sweep_ranks, chosen->cap_mb);
}

std::string UncertaintyText(const Report& report) {
  const std::string text = Uncertainty(report);
  return text.empty() ? "" : absl::StrCat("</p>\n<p>", text);
}

std::string LossText(const Report& report) {
  const std::string difference = LossDifference(report);
  if (!difference.empty()) {
    return absl::StrCat("<strong>The losses differ:</strong> ", difference, ".");
  }
  return absl::StrFormat(
      "Each row has trained the same global batches from the same weights: after %d steps all "
      "losses are equal within %g of their value (gradients are summed in another order).",
      kLossSteps, kLossTolerance);
}

}  // namespace

std::string PageHtml(const Report& report) {
  const Model& model = report.model;
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>DataParallel and DistributedDataParallel</title>\n<style>",
      kStyle,
      "</style>\n</head>\n<body>\n<h1>DataParallel and DistributedDataParallel</h1>\n"
      "<p class=\"muted-text\">ddprun bench dp-ddp, ",
      MachineText(report.machine), "; ",
      absl::StrFormat("a network of %d layers with %.2f million parameters, %d samples a step in "
                      "all rows",
                      model.layers, static_cast<double>(model.parameters) / 1e6,
                      model.global_batch),
      "</p>\n<div class=\"verdict\"><p>", Verdict(report), "</p>\n<p>", Comparison(report),
      UncertaintyText(report), "</p></div>\n", Table(report),
      Figure("Throughput", "Samples a second; each further rank should add as many as the first.",
             ThroughputPlot(report)),
      Figure("One step",
             absl::StrCat(
                 "The step whose length and exposed communication are nearest to the table's, both "
                 "ways on one scale.",
                 Key("deep", "computation"), Key("hidden", "communication, hidden"),
                 Key("exposed", "communication, exposed"),
                 "<br>Numbers are buckets of 1 MB, in the order in which backward fills them. "
                 "Up to 10 % of exposed communication is good."),
             TimelinePlot(report)),
      Figure("bucket_cap_mb", SweepText(report), SweepPlot(report)),
      Figure("Memory of each device",
             "Weights, gradients, momentum, activations and the batch. DataParallel keeps the "
             "momentum, the whole batch and all outputs on device 0, so that this one is full "
             "first; with DistributedDataParallel all are alike.",
             MemoryPlot(report)),
      "<h2>What was measured</h2>\n<p class=\"muted-text\">", LossText(report),
      " Times are medians over the steps. DataParallel is one process with a thread for each "
      "replica: it copies the weights out, gathers the outputs and adds up the gradients in every "
      "step, while nothing is computed. DistributedDataParallel is a process for each rank, which "
      "keeps its own weights and reduces the gradients while backward goes on. C++ has no GIL: "
      "torch's own DataParallel, whose threads share Python's, is slower still.</p>\n</body>\n"
      "</html>\n");
}

}  // namespace ddprun::bench
