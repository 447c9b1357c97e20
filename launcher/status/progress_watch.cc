#include "launcher/status/progress_watch.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "launcher/status/hang_words.h"
#include "launcher/status/judge_words.h"

namespace ddprun::launcher {
namespace {

constexpr double kLongestSteps = 5;

struct Stand {
  double for_s = 0;      // since the last step of any rank
  double longest_s = 0;  // step of the round
  int64_t step = 0;
};

// None: no rank trains and says so, or one does something that the others have to wait for.
std::optional<Stand> StandOf(const RankIndex& ranks) {
  std::optional<Stand> stand;
  // A rank of which nothing is heard may well have stepped.
  if (!ranks.unseen().empty()) return stand;
  for (const SeenRank& seen : ranks.all()) {
    const RankView& rank = *seen.view;
    if (seen.has_ended()) continue;
    if (seen.is_silent || !seen.is_running() || !rank.step) return std::nullopt;
    if (rank.phase != ProgramPhase::kTrain) return std::nullopt;
    // What is no age is none.
    if (!stand) stand = Stand{.for_s = std::numeric_limits<double>::max(), .step = *rank.step};
    stand->for_s = std::min(stand->for_s, SaneSeconds(rank.step_age_s));
    if (rank.up_s) stand->for_s = std::min(stand->for_s, SaneSeconds(*rank.up_s));
    stand->step = std::max(stand->step, *rank.step);
    if (rank.longest_step_s) {
      stand->longest_s = std::max(stand->longest_s, SaneSeconds(*rank.longest_step_s));
    }
  }
  return stand;
}

}  // namespace

ProgressSeen ProgressWatch::Look(const RankIndex& ranks, bool is_explained) {
  ProgressSeen seen;
  const std::optional<Stand> stand = StandOf(ranks);
  const double timeout_s = SecondsOf(policy_.hang_timeout);
  const bool is_standing = stand && timeout_s > 0 &&
                           stand->for_s >= std::max(timeout_s, kLongestSteps * stand->longest_s);
  if (!is_standing) {
    if (is_told_) {
      seen.lines.push_back(
          absl::StrCat("the job goes on: no step had ended for ", SpanText(for_s_)));
    }
    is_told_ = false;
    return seen;
  }
  for_s_ = stand->for_s;
  // What is told of the hang, or soon will be, is enough: a step is always older than the wait in
  // it. When that is over this is, too.
  if (is_explained) return seen;
  std::string text = absl::StrCat("no step has ended for ", SpanText(stand->for_s),
                                  ", the last was ", NumberText(stand->step));
  if (stand->longest_s > 0) {
    absl::StrAppend(&text, "; the longest of this round took ", StepTimeText(stand->longest_s));
  }
  if (!is_told_) seen.lines.push_back(text);
  is_told_ = true;
  seen.problem = Problem{.kind = "no_progress", .text = text, .since_s = stand->for_s};
  return seen;
}

std::string IdleText(const RankIndex& ranks, const JudgePolicy& policy) {
  std::vector<const RankView*> running;
  double idle_s = std::numeric_limits<double>::max();
  for (const SeenRank& seen : ranks.all()) {
    if (!seen.is_running()) continue;
    if (seen.is_silent || !seen.view->idle_s) return "";
    // The kernel may count CPU time by samples and miss all of what sleeps between short steps.
    if (seen.view->step && seen.view->step_age_s < SecondsOf(policy.hang_timeout)) return "";
    running.push_back(seen.view);
    idle_s = std::min(idle_s, SaneSeconds(*seen.view->idle_s));
  }
  if (running.empty() || policy.hang_timeout <= Duration::zero()) return "";
  if (idle_s <= SecondsOf(policy.hang_timeout)) return "";
  const std::string places = WaitPlacesText(running);
  return absl::StrCat("no rank has used CPU time for ", SpanText(idle_s),
                      places.empty() ? "" : "; they wait in ", places);
}

}  // namespace ddprun::launcher
