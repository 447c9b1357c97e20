#include "launcher/status/status_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/status/phase_name.h"
#include "launcher/status/status_words.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxSilentNames = 8;

std::string TextOr(const std::string& text, const char* otherwise) {
  return text.empty() ? otherwise : ShownText(text);
}

// "" where there is no value.
template <typename Value, typename Text>
std::string IfKnown(const std::optional<Value>& value, const Text& text) {
  return value ? text(*value) : "";
}

Cell StateCell(const RankView& rank, bool has_problem) {
  const bool has_ended = !rank.end.empty();
  // By SIGSTOP or a terminal; the kernel's name for it (process_facts.cc).
  if (!has_ended && rank.wait == "do_signal_stop") return {"stopped", CellColour::kBad};
  const CellColour colour = HasFailed(rank)            ? CellColour::kBad
                            : has_problem              ? CellColour::kNotice
                            : rank.state == "starting" ? CellColour::kNotice
                            : rank.state == "running"  ? CellColour::kGood
                                                       : CellColour::kNone;
  return {ShownText(has_ended ? rank.end : rank.state), colour};
}

// "all-reduce #88123 for 42 s", "#88123".
std::string CollectiveText(const RankView& rank) {
  const GroupView* group = MainGroup(rank);
  if (group == nullptr || group->called == 0) return "";
  const bool waits = group->waiting_s >= kNotableWait_s;
  // Which of the calls under way is the oldest, on which it waits.
  const uint64_t number = waits ? std::min(group->done + 1, group->called) : group->called;
  const std::string count = absl::StrCat("#", number);
  if (!waits) return count;
  return absl::StrCat(TextOr(group->op, "operation"), " ", count, " for ",
                      TimeText(group->waiting_s));
}

}  // namespace

std::string NodeLabel(const NodeView& node) {
  return ShownText(!node.name.empty()   ? node.name
                   : !node.host.empty() ? node.host
                   : !node.id.empty()   ? node.id
                                        : "node");
}

std::string NodeLabelWithAge(const NodeView& node) {
  if (!(node.age_s > kOldView_s)) return NodeLabel(node);
  return absl::StrCat(NodeLabel(node), " (as of ", TimeText(node.age_s), " ago)");
}

std::string NodeNote(const NodeView& node) {
  std::vector<std::string> parts;
  if (!node.waiting_for.empty()) {
    parts.push_back(ShownText(node.waiting_for));
    if (node.waiting_left_s) {
      absl::StrAppend(&parts.back(), " (", TimeText(*node.waiting_left_s), " left)");
    }
  }
  if (node.health == "bad" || node.health == "unknown") {
    parts.push_back(absl::StrCat("health ", node.health, node.health_line.empty() ? "" : ": ",
                                 ShownText(node.health_line)));
  }
  if (node.oom_kills > 0) {
    parts.push_back(
        absl::StrCat("out of memory: ", CountedNoun(static_cast<size_t>(node.oom_kills), "kill")));
  }
  return absl::StrJoin(parts, ", ");
}

std::string JobSentence(const JobView& job) {
  return job.sentence.empty() ? TextOr(job.state, "unknown") : ShownText(job.sentence);
}

std::vector<std::string> ProblemLines(const JobView& job) {
  std::vector<std::string> lines;
  const auto add = [&lines](const Problem& problem) {
    const std::string kind = absl::StrReplaceAll(TextOr(problem.kind, "problem"), {{"_", " "}});
    lines.push_back(absl::StrCat(kind, ": ", ShownText(problem.text)));
  };
  for (const Problem& problem : job.problems) add(problem);
  for (const NodeView& node : job.nodes) {
    for (const Problem& problem : node.problems) {
      const bool is_told =
          std::any_of(job.problems.begin(), job.problems.end(), [&problem](const Problem& other) {
            return other.kind == problem.kind && other.text == problem.text;
          });
      if (!is_told) add(problem);
    }
  }
  return lines;
}

std::string SilentLine(const JobView& job) {
  if (job.silent_nodes.empty()) return "";
  const size_t count = std::min(job.silent_nodes.size(), kMaxSilentNames);
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(ShownText(job.silent_nodes[i]));
  const size_t more = job.silent_nodes.size() - count;
  return absl::StrCat("no answer from ", absl::StrJoin(names, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", CountedNoun(more, "node"), " more"));
}

std::string RoundLine(const JobView& job) {
  if (job.rounds.empty()) return "";
  const RoundView& round = job.rounds.back();
  std::vector<std::string> parts;
  for (const auto& [name, seconds] :
       {std::pair("detect", round.detect_s), std::pair("stop", round.stop_s),
        std::pair("rendezvous", round.rendezvous_s), std::pair("exec", round.exec_s),
        std::pair("first step", round.first_step_s)}) {
    if (seconds) parts.push_back(absl::StrCat(name, " ", TimeText(*seconds)));
  }
  if (parts.empty()) return "";
  const std::string reason =
      round.reason.empty() ? "" : absl::StrCat(" (", ShownText(round.reason), ")");
  return absl::StrCat("start of round ", round.round, reason, ": ", absl::StrJoin(parts, ", "));
}

std::vector<std::string> FaultLines(const JobView& job, size_t max_last_lines) {
  std::vector<std::string> lines;
  if (!job.first_fault) return lines;
  const FaultView& fault = *job.first_fault;
  const std::string host = fault.host.empty() ? "" : absl::StrCat(" on ", ShownText(fault.host));
  lines.push_back(absl::StrCat("first fault, in round ", fault.round, ", ", TimeText(fault.age_s),
                               " ago: rank ", fault.rank, host, ", ",
                               TextOr(fault.text, "how is unknown")));
  std::vector<std::string> last = absl::StrSplit(fault.last_lines, '\n');
  while (!last.empty() && last.back().empty()) last.pop_back();
  const size_t first = last.size() - std::min(last.size(), max_last_lines);
  for (size_t i = first; i < last.size(); ++i) lines.push_back("  " + ShownText(last[i]));
  return lines;
}

std::vector<TableColumn> RankColumns() {
  return {{.header = "rank", .importance = 0, .is_number = true},
          {.header = "node", .importance = 4},
          {.header = "state", .importance = 2},
          {.header = "step", .importance = 1, .is_number = true},
          {.header = "age", .importance = 5, .is_number = true},
          {.header = "collective", .importance = 3},
          {.header = "self", .importance = 7, .is_number = true},
          {.header = "CPU", .importance = 9, .is_number = true},
          {.header = "GPU", .importance = 8, .is_number = true},
          {.header = "memory", .importance = 11, .is_number = true},
          {.header = "phase", .importance = 10},
          {.header = "last line", .importance = 6, .is_stretching = true}};
}

std::vector<Cell> RankCells(const JobView& job, const RankPlace& place, bool has_node,
                            bool shows_last_line) {
  const NodeView& node = job.nodes[place.node];
  const RankView& rank = node.ranks[place.index];
  return {{absl::StrCat(rank.rank)},
          {has_node ? NodeLabelWithAge(node) : ""},
          StateCell(rank, place.has_problem),
          {IfKnown(rank.step, GroupedDigits)},
          {rank.step ? TimeText(rank.step_age_s) : ""},
          {CollectiveText(rank)},
          {IfKnown(rank.self_s, TimeText)},
          {IfKnown(rank.cpu, [](double cores) { return absl::StrFormat("%.1f", cores); })},
          {IfKnown(rank.gpu, PercentText)},
          {IfKnown(rank.memory, MemoryText)},
          {rank.phase == ProgramPhase::kUnknown ? "" : PhaseName(rank.phase)},
          {shows_last_line ? ShownText(rank.last_line) : ""}};
}

}  // namespace ddprun::launcher
