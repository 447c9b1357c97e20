#include "launcher/status/status_text.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/status/job_overview.h"
#include "launcher/status/status_rows.h"
#include "launcher/status/status_words.h"
#include "launcher/status/text_table.h"
#include "launcher/status/worst_first.h"

namespace ddprun::launcher {
namespace {

using Lines = std::vector<std::string>;

constexpr size_t kMaxRanks = 64;     // that are shown each
constexpr size_t kMaxOutliers = 16;  // of more ranks
constexpr size_t kMaxProblems = 10;
constexpr size_t kMaxFaultLines = 10;
constexpr int kMaxWrapped = 4;

void Append(Lines lines, Lines& to) {
  to.insert(to.end(), std::move_iterator(lines.begin()), std::move_iterator(lines.end()));
}

void AppendWrapped(const std::string& text, int columns, Lines& to) {
  if (!text.empty()) Append(WrappedLines(text, columns, kMaxWrapped), to);
}

void AppendProblems(const JobView& job, int columns, Lines& to) {
  const Lines problems = ProblemLines(job);
  const size_t shown = std::min(problems.size(), kMaxProblems);
  for (size_t i = 0; i < shown; ++i) AppendWrapped(problems[i], columns, to);
  if (const size_t more = problems.size() - shown; more > 0) {
    AppendWrapped(absl::StrCat("and ", CountedNoun(more, "problem"), " more"), columns, to);
  }
}

// "host-1, node rank 1, hosts the coordinator: joining, 1 of 2 nodes, ..."; empty: of a usual node.
std::string NodeHeading(const NodeView& node) {
  std::vector<std::string> facts;
  if (node.state != "running" && !node.state.empty()) facts.push_back(ShownText(node.state));
  if (std::string note = NodeNote(node); !note.empty()) facts.push_back(std::move(note));
  return absl::StrCat(NodeLabelWithAge(node), facts.empty() ? "" : ": ",
                      absl::StrJoin(facts, ", "));
}

bool IsUsual(const NodeView& node) {
  return NodeHeading(node) == NodeLabel(node) && !node.ranks.empty();
}

// All ranks, those of the worst node first. A job of one usual node needs no heading.
Lines AllRanks(const JobView& job, const std::vector<RankPlace>& worst,
               const TextOptions& options) {
  std::vector<std::vector<RankPlace>> of_node(job.nodes.size());
  std::vector<size_t> order;
  for (const RankPlace& place : worst) {
    if (of_node[place.node].empty()) order.push_back(place.node);
    of_node[place.node].push_back(place);
  }
  const bool has_headings = job.nodes.size() != 1 || !IsUsual(job.nodes[0]);
  TextTable table{.columns = RankColumns(), .rows = {}};
  for (const size_t node : order) {
    if (has_headings) table.rows.push_back({.heading = NodeHeading(job.nodes[node]), .cells = {}});
    for (const RankPlace& place : of_node[node]) {
      table.rows.push_back(
          {.heading = "",
           .cells = RankCells(job, place, /*has_node=*/false, options.shows_last_lines)});
    }
  }
  Lines lines = TableLines(table, options.columns, options.allows_colours);
  for (size_t node = 0; node < job.nodes.size(); ++node) {
    if (!of_node[node].empty()) continue;
    lines.push_back(CutToColumns(NodeHeading(job.nodes[node]), options.columns));
  }
  return lines;
}

Lines Outliers(const JobView& job, const std::vector<RankPlace>& worst,
               const TextOptions& options) {
  TextTable table{.columns = RankColumns(), .rows = {}};
  size_t outliers = 0;
  for (const RankPlace& place : worst) {
    if (!place.stands_out) break;  // they come first
    if (++outliers > kMaxOutliers) continue;
    table.rows.push_back(
        {.heading = "",
         .cells = RankCells(job, place, job.nodes.size() > 1, options.shows_last_lines)});
  }
  Lines lines = TableLines(table, options.columns, options.allows_colours);
  if (outliers > kMaxOutliers) {
    lines.push_back(CutToColumns(
        absl::StrCat("and ", CountedNoun(outliers - kMaxOutliers, "rank"), " more that stand out"),
        options.columns));
  }
  return lines;
}

}  // namespace

std::string StatusText(const JobView& job, const TextOptions& options) {
  TextOptions to = options;
  to.columns = std::max(to.columns, 1);
  Lines lines;
  AppendWrapped(JobSentence(job), to.columns, lines);
  AppendWrapped(ShownText(job.waiting_line), to.columns, lines);
  AppendProblems(job, to.columns, lines);
  if (!job.bad_hosts.empty()) {
    AppendWrapped("taken out: " + ShownText(job.bad_hosts), to.columns, lines);
  }
  AppendWrapped(SilentLine(job), to.columns, lines);
  const std::vector<RankPlace> worst = WorstFirst(job);
  if (worst.size() <= kMaxRanks) {
    Append(AllRanks(job, worst, to), lines);
  } else {
    Append(Outliers(job, worst, to), lines);
    Append(SpreadLines(job, to.columns), lines);
    Append(NodeLines(job, worst, to.columns, to.allows_colours), lines);
  }
  AppendWrapped(RoundLine(job), to.columns, lines);
  for (const std::string& line : FaultLines(job, to.shows_last_lines ? kMaxFaultLines : 0)) {
    lines.push_back(CutToColumns(line, to.columns));
  }
  return absl::StrJoin(lines, "\n") + "\n";
}

}  // namespace ddprun::launcher
