#include "launcher/status/time_ledger.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/status/judge_words.h"

namespace ddprun::launcher {
namespace {

bool IsStall(const Problem& problem) {
  return problem.kind == "hang" || (problem.kind == "no_progress" && problem.ranks.empty());
}

struct Ranks {
  int running = 0;
  bool is_reporting = false;
  bool has_step = false;
  // Of the rank that did most of it in this round; `aside_s`: of both together.
  double checkpoint_s = 0, evaluation_s = 0, aside_s = 0;
  double stepping_s = 0;  // since the first of them ended its first step
};

Ranks Survey(const JobView& job) {
  Ranks ranks;
  for (const NodeView& node : job.nodes) {
    for (const RankView& rank : node.ranks) {
      if (rank.state != "running") continue;
      ++ranks.running;
      ranks.has_step = ranks.has_step || rank.step.has_value();
      ranks.is_reporting = ranks.is_reporting || rank.step || rank.phase != ProgramPhase::kUnknown;
      ranks.checkpoint_s = std::max(ranks.checkpoint_s, SaneSeconds(rank.checkpoint_s));
      ranks.evaluation_s = std::max(ranks.evaluation_s, SaneSeconds(rank.evaluation_s));
      ranks.aside_s =
          std::max(ranks.aside_s, SaneSeconds(rank.checkpoint_s) + SaneSeconds(rank.evaluation_s));
      if (rank.up_s && rank.first_step_s) {
        ranks.stepping_s =
            std::max(ranks.stepping_s, SaneSeconds(*rank.up_s) - SaneSeconds(*rank.first_step_s));
      }
    }
  }
  return ranks;
}

// Since the view's round began; none where it does not tell.
std::optional<double> RoundAge(const JobView& job) {
  if (job.rounds.empty() || job.rounds.back().round != job.round) return std::nullopt;
  return SaneSeconds(job.rounds.back().age_s);
}

// Since what ended the round that the next one follows, or is to follow. 0: the view does not tell.
double SinceRoundEnd(const JobView& job) {
  const bool is_over = job.state == "stopping" || job.state == "forming";
  const uint64_t next_round = is_over ? job.round + 1 : job.round;
  double since_s = SaneSeconds(job.round_over_s.value_or(0));
  if (job.first_fault && job.first_fault->round + 1 == next_round) {
    since_s = std::max(since_s, SaneSeconds(job.first_fault->age_s));
  }
  if (is_over || !RoundAge(job)) return since_s;
  const RoundView& round = job.rounds.back();
  double way_s = *RoundAge(job);
  for (const std::optional<double>& part : {round.detect_s, round.stop_s, round.rendezvous_s}) {
    way_s += SaneSeconds(part.value_or(0));
  }
  return std::max(since_s, way_s);
}

}  // namespace

void TimeLedger::Move(Part from, Part to, double seconds) {
  const double moved = std::clamp(seconds, 0.0, seconds_[from]);
  seconds_[from] -= moved;
  seconds_[to] += moved;
}

double TimeLedger::total_s() const {
  double total_s = 0;
  for (const double seconds : seconds_) total_s += seconds;
  return total_s - At(kNothing);
}

void TimeLedger::BeginRestart() {
  has_run_ = true;
  Move(kStop, kRestart, At(kStop));
  if (part_ == kStop) part_ = kRestart;
}

void TimeLedger::FollowRound(const JobView& job) {
  if (job.round <= round_) return;
  if (round_ > 0) BeginRestart();
  round_ = job.round;
  is_round_up_ = false;
  has_stepped_ = false;
  aside_s_ = lately_s_ = {};
  all_aside_s_ = 0;
}

TimeLedger::Part TimeLedger::PartNow(const JobView& job) {
  if (job.state == "ended") return kNothing;
  if (job.state == "stopping") {
    is_round_up_ = true;
    return kStop;
  }
  const Ranks ranks = Survey(job);
  const bool is_up = job.state == "running" || (job.state == "unknown" && ranks.running > 0);
  if (!is_up) {
    // It forms again: what the round before took to stop was for that.
    if (is_round_up_) BeginRestart();
    return Beginning();
  }
  is_round_up_ = true;
  if (ranks.is_reporting && !has_reported_) {
    // Until its first word it has started, as is known now.
    Move(kUnreported, Beginning(), At(kUnreported));
    if (part_ == kUnreported) part_ = Beginning();
    has_reported_ = true;
  }
  has_stepped_ = has_stepped_ || ranks.has_step;
  if (std::any_of(job.problems.begin(), job.problems.end(), IsStall)) return kStall;
  if (!has_reported_) return kUnreported;
  return has_stepped_ ? kSteps : Beginning();
}

double TimeLedger::HeldSeconds(Part part, const JobView& job) const {
  switch (part) {
    case kStall: {
      double since_s = 0;
      for (const Problem& problem : job.problems) {
        if (IsStall(problem)) since_s = std::max(since_s, SaneSeconds(problem.since_s));
      }
      return since_s;
    }
    case kStop:
    case kRestart:
      return SinceRoundEnd(job);
    case kSteps:
      // Where they are known since then; after a stall they begin now.
      return part_ == kStart || part_ == kRestart ? Survey(job).stepping_s : 0;
    case kUnreported:
    case kStart:
    case kCheckpoint:
    case kEvaluation:
    case kNothing:
    case kPartCount:
      return 0;
  }
  return 0;
}

void TimeLedger::Add(TimePoint now, const JobView& job) {
  FollowRound(job);
  const Part part = PartNow(job);
  if (!last_) {
    // A job that begins has done nothing else yet. One whose first round is over has.
    is_whole_ = job.round == 0 || (job.round == 1 && part != kStop && job.state != "forming");
    const double up_s = is_whole_ ? SaneSeconds(job.up_s) : 0;
    const double steps_s = part == kSteps ? std::min(Survey(job).stepping_s, up_s) : 0;
    seconds_[kSteps] += steps_s;
    const double ran_s =
        part == kUnreported ? std::min(RoundAge(job).value_or(up_s), up_s) : steps_s;
    seconds_[kUnreported] += ran_s - steps_s;
    if (part == kStart || ran_s > 0) seconds_[kStart] += up_s - ran_s;
    part_ = part;
  } else if (part == part_) {
    seconds_[part] += SecondsOf(now - *last_);
  } else {
    const double passed_s = SecondsOf(now - *last_);
    const double held_s = HeldSeconds(part, job);
    const double now_s = std::clamp(held_s, 0.0, passed_s);
    seconds_[part] += now_s;
    seconds_[part_] += passed_s - now_s;
    // A stall is called one when it has stood for long.
    const bool ran = part_ == kSteps || part_ == kUnreported;
    if (part == kStall && ran) {
      // What had been taken for an evaluation or a checkpoint first.
      double before_s = held_s - now_s;
      for (const Part aside : {kEvaluation, kCheckpoint}) {
        const double taken_s = std::min({before_s, lately_s_[aside], At(aside)});
        Move(aside, kStall, taken_s);
        before_s -= taken_s;
      }
      Move(part_, kStall, before_s);
    }
  }
  SetAside(job);
  last_ = now;
  part_ = part;
}

// What the ranks did since the last view beside their steps. Before the first step it is part of
// the start.
void TimeLedger::SetAside(const JobView& job) {
  const Ranks ranks = Survey(job);
  const std::pair<Part, double> parts[] = {{kCheckpoint, ranks.checkpoint_s},
                                           {kEvaluation, ranks.evaluation_s}};
  // One rank may do one while others do the other.
  double left_s = std::max(ranks.aside_s - all_aside_s_, 0.0);
  all_aside_s_ += left_s;
  for (const auto& [part, all_s] : parts) {
    // A view without the rank that did most has less.
    const double more_s = std::max(all_s - aside_s_[part], 0.0);
    aside_s_[part] += more_s;
    const double moved_s = std::min(more_s, left_s);
    left_s -= moved_s;
    lately_s_[part] = moved_s > 0 ? lately_s_[part] + moved_s : 0;
    if (part_ == kSteps) Move(kSteps, part, moved_s);
  }
}

std::optional<double> TimeLedger::effective_share() const {
  const double total_s = this->total_s();
  if (!has_reported_ || !is_whole_ || total_s <= 0) return std::nullopt;
  return steps_s() / total_s;
}

std::string TimeLedger::ClosingLine() const {
  const double total_s = this->total_s();
  if (total_s < 60 || !is_whole_) return "";
  // Rounded down: what lost time has not 100.0 %.
  const double percent = std::floor(steps_s() / total_s * 1000) / 10;
  std::string out = absl::StrFormat("%.1f %% of %s spent %s", percent, SpanText(total_s),
                                    has_reported_ ? "in steps" : "running");
  const std::pair<const char*, double> parts[] = {
      {"start", start_s()},           {"restarts", restart_s()}, {"checkpoints", checkpoint_s()},
      {"evaluation", evaluation_s()}, {"stalls", stall_s()},     {"stop", stop_s()}};
  std::vector<std::string> named;
  for (const auto& [name, seconds] : parts) {
    if (seconds >= 1) named.push_back(absl::StrCat(name, " ", SpanText(seconds)));
  }
  if (!named.empty()) absl::StrAppend(&out, "; ", absl::StrJoin(named, ", "));
  return out;
}

}  // namespace ddprun::launcher
