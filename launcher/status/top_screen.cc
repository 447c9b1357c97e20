#include "launcher/status/top_screen.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/status/status_rows.h"
#include "launcher/status/status_words.h"
#include "launcher/status/text_table.h"
#include "launcher/status/worst_first.h"

namespace ddprun::launcher {
namespace {

using Lines = std::vector<std::string>;

constexpr size_t kMaxFaultLines = 10;
constexpr size_t kRowsForCurve = 10;  // with less, ranks are worth more
constexpr char kKeys[] = "q quit";

std::string SpeedText(double value) {
  return value < 99.95 ? absl::StrFormat("%.1f", value)
                       : GroupedDigits(static_cast<int64_t>(std::min(value, 1e15)));
}

bool IsSpeed(double value) { return std::isfinite(value) && value >= 0; }

// "256 samples/s ▅▆▆▇█": from 0 to the highest, so that small changes look small.
std::string CurveLine(const SpeedHistory& history, const TopOptions& options) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  constexpr size_t kLevels = std::size(kBlocks);
  double newest = -1, most = 0;
  for (const double value : history.values) {
    if (!IsSpeed(value)) continue;
    newest = value;
    most = std::max(most, value);
  }
  if (newest < 0) return "";
  std::string line = absl::StrCat(SpeedText(newest), " ", ShownText(history.unit), " ");
  const size_t room = static_cast<size_t>(std::max(options.columns - ColumnsOf(line), 0));
  const size_t count = std::min(history.values.size(), room);
  for (size_t i = history.values.size() - count; i < history.values.size(); ++i) {
    const double value = history.values[i];
    if (!IsSpeed(value)) {
      line += ' ';
      continue;
    }
    const double share = most > 0 ? value / most : 0;
    const size_t level = std::min(static_cast<size_t>(share * kLevels), kLevels - 1);
    line += options.is_utf8 ? kBlocks[level] : kAscii[level];
  }
  return line;
}

// What stands above the ranks, in the order of its weight.
Lines HeadLines(const JobView& job, const SpeedHistory& history, const TopOptions& options,
                size_t room) {
  Lines lines = {JobSentence(job)};
  if (!job.waiting_line.empty()) lines.push_back(ShownText(job.waiting_line));
  const Lines problems = ProblemLines(job);
  // All, or some and how many more.
  const size_t most = std::max<size_t>(room / 4, 1);
  const size_t shown = problems.size() <= most ? problems.size() : std::max<size_t>(most - 1, 1);
  lines.insert(lines.end(), problems.begin(),
               problems.begin() + static_cast<std::ptrdiff_t>(shown));
  if (problems.size() > shown && most > 1) {
    lines.push_back(absl::StrCat("and ", CountedNoun(problems.size() - shown, "problem"), " more"));
  }
  if (std::string silent = SilentLine(job); !silent.empty()) lines.push_back(std::move(silent));
  if (room >= kRowsForCurve) {
    if (std::string curve = CurveLine(history, options); !curve.empty()) {
      lines.push_back(std::move(curve));
    }
  }
  return lines;
}

// Of at most `room` lines, the header among them.
Lines RankLines(const JobView& job, const TopOptions& options, size_t room) {
  const std::vector<RankPlace> worst = WorstFirst(job);
  const size_t with_header = worst.size() + 1;
  const bool fits = with_header <= room;
  // The line that counts the others is worth a rank's, not the only rank's.
  const size_t shown = fits        ? worst.size()
                       : room >= 3 ? room - 2
                                   : room - std::min<size_t>(room, 1);
  TextTable table{.columns = RankColumns(), .rows = {}};
  for (size_t i = 0; i < shown; ++i) {
    table.rows.push_back(
        {.heading = "",
         .cells = RankCells(job, worst[i], job.nodes.size() > 1 || job.nodes[0].age_s > kOldView_s,
                            options.shows_last_lines)});
  }
  Lines lines = TableLines(table, options.columns, options.allows_colours);
  if (!fits && room >= 3) {
    lines.push_back(CutToColumns(
        absl::StrCat("and ", CountedNoun(worst.size() - shown, "rank"), " more"), options.columns));
  }
  return lines;
}

// What stands below the ranks, where there is room.
Lines FootLines(const JobView& job, const TopOptions& options) {
  Lines lines;
  for (const NodeView& node : job.nodes) {
    const std::string note = NodeNote(node);
    if (note.empty() && !node.ranks.empty()) continue;
    lines.push_back(
        absl::StrCat(NodeLabelWithAge(node), ": ", note.empty() ? ShownText(node.state) : note));
  }
  if (std::string round = RoundLine(job); !round.empty()) lines.push_back(std::move(round));
  const Lines fault = FaultLines(job, options.shows_last_lines ? kMaxFaultLines : 0);
  lines.insert(lines.end(), fault.begin(), fault.end());
  return lines;
}

}  // namespace

std::vector<std::string> TopScreen(const JobView& job, const SpeedHistory& history,
                                   const TopOptions& options) {
  TopOptions to = options;
  to.columns = std::max(to.columns, 1);
  const size_t rows = static_cast<size_t>(std::max(to.rows, 1));
  const size_t room = rows - 1;  // without the keys
  Lines lines;
  const auto add = [&](const Lines& more) {
    for (const std::string& line : more) lines.push_back(CutToColumns(line, to.columns));
  };
  const bool has_ranks = std::any_of(job.nodes.begin(), job.nodes.end(),
                                     [](const NodeView& node) { return !node.ranks.empty(); });
  Lines head = HeadLines(job, history, to, room);
  // A rank and the header are always there, under the sentence.
  const size_t most = has_ranks ? std::max<size_t>(room - std::min<size_t>(room, 2), 1) : room;
  head.resize(std::min(head.size(), most));
  add(head);
  if (has_ranks && lines.size() < room) {
    Lines ranks = RankLines(job, to, room - lines.size());  // fits, and may hold colours
    lines.insert(lines.end(), std::move_iterator(ranks.begin()), std::move_iterator(ranks.end()));
  }
  add(FootLines(job, to));
  lines.resize(room);
  lines.push_back(CutToColumns(kKeys, to.columns));
  return lines;
}

}  // namespace ddprun::launcher
