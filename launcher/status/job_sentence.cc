#include "launcher/status/job_sentence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/status/judge_words.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Counted;

// A mean or a sum over ranks that is known only if each of them tells.
class Sum {
 public:
  void Add(const std::optional<double>& value) {
    if (!value || !IsTime(*value)) {
      is_known_ = false;
      return;
    }
    sum_ += *value;
    ++count_;
  }
  void Spoil() { is_known_ = false; }
  std::optional<double> sum() const {
    return is_known_ && count_ > 0 && std::isfinite(sum_) ? std::optional(sum_) : std::nullopt;
  }
  std::optional<double> mean() const { return sum() ? std::optional(sum_ / count_) : std::nullopt; }

 private:
  double sum_ = 0;
  int count_ = 0;
  bool is_known_ = true;
};

int CountNodes(const JobView& job, bool only_spares) {
  int count = 0;
  for (const NodeView& node : job.nodes) {
    // Of a job that forms those that are lost do not count; its others are asked at each look.
    if (node.state == "leaving" || (job.state == "forming" && node.age_s > 0)) continue;
    if (!only_spares || node.node_rank < 0) ++count;
  }
  return count;
}

// "1 node", "3 of 4 nodes", "3 of 2 to 4 nodes".
std::string NodesText(const JobView& job, int count) {
  if (job.max_nodes <= 1) return Counted(count, "node");
  if (job.min_nodes >= job.max_nodes) {
    return absl::StrCat(count, " of ", Counted(job.max_nodes, "node"));
  }
  return absl::StrCat(count, " of ", job.min_nodes, " to ", Counted(job.max_nodes, "node"));
}

// What the program says it does where that is no training: "evaluation for 30 s",
// "evaluation for 30 s on 1 of 4 ranks".
std::string PhaseText(const RankIndex& ranks) {
  struct Doing {
    int ranks = 0;
    double longest_s = 0;
  };
  std::map<ProgramPhase, Doing> phases;
  int running = 0;
  for (const SeenRank& seen : ranks.all()) {
    if (!seen.is_running() || seen.is_silent) continue;
    Doing& doing = phases[seen.view->phase];
    ++doing.ranks;
    doing.longest_s = std::max(doing.longest_s, SaneSeconds(seen.view->phase_s));
    ++running;
  }
  constexpr std::pair<ProgramPhase, const char*> kShown[] = {
      {ProgramPhase::kCheckpoint, "checkpoint"},
      {ProgramPhase::kEvaluation, "evaluation"},
      {ProgramPhase::kStart, "start"}};
  for (const auto& [phase, name] : kShown) {
    const Doing& doing = phases[phase];
    const bool is_start = phase == ProgramPhase::kStart;
    // Shorter ones come and go with every look.
    constexpr double kWorthWords_s = 1;
    if (doing.ranks == 0 || (is_start ? doing.ranks < running : doing.longest_s < kWorthWords_s)) {
      continue;
    }
    return absl::StrCat(name, " for ", SpanText(doing.longest_s),
                        doing.ranks < running
                            ? absl::StrCat(" on ", doing.ranks, " of ", Counted(running, "rank"))
                            : "");
  }
  return "";
}

std::string RestartsText(const JobView& job) {
  std::string out =
      job.restart_count == 0 ? "no restart yet" : Counted(job.restart_count, "restart");
  if (!job.first_fault) return out;
  const std::string fault = FaultText(*job.first_fault);
  const std::string who = IsHang(*job.first_fault)
                              ? ""
                              : absl::StrCat("rank ", job.first_fault->rank,
                                             absl::StartsWith(fault, "killed") ? " " : ": ");
  absl::StrAppend(&out, " (", job.restart_count < 2 ? "" : "the last: ", who, fault, ")");
  return out;
}

// It has ranks that run, and none of them has ever said anything.
bool ReportsNothing(const RankIndex& ranks) {
  bool runs = false;
  for (const SeenRank& seen : ranks.all()) {
    if (!seen.is_running()) continue;
    if (seen.view->step || seen.view->phase != ProgramPhase::kUnknown) return false;
    runs = true;
  }
  return runs;
}

std::string WaitingWords(const std::string& words, const std::optional<double>& left_s) {
  if (!left_s || !IsTime(*left_s)) return words;
  return absl::StrCat(words, ", ", SpanText(std::ceil(SaneSeconds(*left_s))), " left");
}

}  // namespace

void FillFigures(const RankIndex& ranks, JobView& job) {
  const bool is_any_running = std::any_of(ranks.all().begin(), ranks.all().end(),
                                          [](const SeenRank& seen) { return seen.is_running(); });
  std::optional<int64_t> step;
  Sum samples_per_s, step_s, exposed_share;
  if (!ranks.unseen().empty()) samples_per_s.Spoil();
  for (const SeenRank& seen : ranks.all()) {
    if (is_any_running && !seen.is_running()) continue;
    const RankView& rank = *seen.view;
    if (!rank.step) continue;
    if (seen.is_silent) {
      samples_per_s.Spoil();
      continue;
    }
    step = std::min(step.value_or(*rank.step), *rank.step);
    samples_per_s.Add(rank.samples_per_s);
    step_s.Add(rank.step_s);
    exposed_share.Add(rank.exposed_share);
  }
  job.step = step;
  job.samples_per_s = samples_per_s.sum();
  job.step_s = step_s.mean();
  job.exposed_share = exposed_share.mean();
}

std::string SentenceOf(const RankIndex& ranks, const JobView& job) {
  const bool is_running = job.state == "running";
  std::vector<std::string> parts;
  if (job.state == "forming") {
    const int count = CountNodes(job, false);
    const int spares = std::max(0, count - std::max(job.max_nodes, 1));
    if (count > 0) parts.push_back(NodesText(job, count - spares));
    if (spares > 0) parts.push_back(Counted(spares, "spare"));
  } else {
    if (job.round > 0) parts.push_back(absl::StrCat("round ", job.round));
    if (job.node_count > 0) parts.push_back(NodesText(job, job.node_count));
    if (job.world_size > 0) parts.push_back(Counted(job.world_size, "rank"));
    const int spares = is_running ? CountNodes(job, true) : 0;
    if (spares > 0) parts.push_back(Counted(spares, "spare"));
    if (job.step) parts.push_back("step " + NumberText(*job.step));
    if (is_running && job.samples_per_s) {
      parts.push_back(RateText(*job.samples_per_s) + " samples/s");
    }
    const std::string phase = is_running ? PhaseText(ranks) : "";
    if (!phase.empty()) parts.push_back(phase);
  }
  parts.push_back("up " + SpanText(job.up_s));
  // The first one has not begun: its round is being formed.
  const bool is_first_due = job.state == "forming" && job.first_fault;
  if (job.restart_count > 0 || is_first_due) parts.push_back(RestartsText(job));
  std::string out =
      absl::StrCat(job.state.empty() ? "unknown" : job.state, ": ", absl::StrJoin(parts, ", "));
  if (is_running && ReportsNothing(ranks)) out += " (the program reports no steps)";
  return out;
}

std::string WaitingWords(const NodeView& node) {
  return WaitingWords(node.waiting_for, node.waiting_left_s);
}

std::string OwnWaitingText(const JobView& job) {
  if (!job.waiting_for.empty()) return WaitingWords(job.waiting_for, job.waiting_left_s);
  const auto first = std::find_if(job.nodes.begin(), job.nodes.end(),
                                  [](const NodeView& node) { return !node.waiting_for.empty(); });
  if (first == job.nodes.end()) return "";
  const bool is_of_all = std::all_of(
      job.nodes.begin(), job.nodes.end(),
      [&first](const NodeView& node) { return node.waiting_for == first->waiting_for; });
  return absl::StrCat(is_of_all ? "" : absl::StrCat("node ", first->name, ": "),
                      WaitingWords(*first));
}

std::string FaultText(const FaultView& fault) {
  constexpr size_t kMaxLength = 160;
  const std::string text = EscapeControl(fault.text);
  if (text.empty()) return "failed";
  if (text.size() <= kMaxLength) return text;
  return text.substr(0, CharacterStart(text, kMaxLength)) + "...";
}

bool IsHang(const FaultView& fault) { return absl::StartsWith(fault.text, "hang: "); }

}  // namespace ddprun::launcher
