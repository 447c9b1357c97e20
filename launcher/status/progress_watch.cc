#include "launcher/status/progress_watch.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/status/hang_words.h"
#include "launcher/status/judge_words.h"

namespace ddprun::launcher {
namespace {

constexpr double kLongestSteps = 5;

struct Stand {
  std::vector<int> ranks{};                           // those that stand; empty: all
  std::vector<int> behind{};                          // those at the lowest step, if steps differ
  double for_s = std::numeric_limits<double>::max();  // since the last step of any of them
  double longest_s = 0;                               // step of the round
  int64_t step = 0;
  int64_t lowest_step = std::numeric_limits<int64_t>::max();

  void Add(const RankView& rank) {
    // What is no age is none.
    for_s = std::min(for_s, SaneSeconds(rank.step_age_s));
    if (rank.up_s) for_s = std::min(for_s, SaneSeconds(*rank.up_s));
    step = std::max(step, *rank.step);
    lowest_step = std::min(lowest_step, *rank.step);
    if (rank.longest_step_s) longest_s = std::max(longest_s, SaneSeconds(*rank.longest_step_s));
  }
  bool IsLong(double timeout_s) const {
    return for_s >= std::max(timeout_s, kLongestSteps * longest_s);
  }
};

bool WaitsInGroup(const RankView& rank) {
  return std::any_of(rank.groups.begin(), rank.groups.end(),
                     [](const GroupView& group) { return group.waiting_s > 0; });
}

// None: steps go on, no rank trains and says so, or one does something that the others have to wait
// for.
std::optional<Stand> StandOf(const RankIndex& ranks, double timeout_s) {
  // A rank of which nothing is heard may well have stepped.
  if (!ranks.unseen().empty()) return std::nullopt;
  Stand all, some;
  std::vector<const RankView*> training;
  for (const SeenRank& seen : ranks.all()) {
    const RankView& rank = *seen.view;
    if (seen.has_ended()) continue;
    if (seen.is_silent || !seen.is_running() || !rank.step) return std::nullopt;
    if (rank.phase != ProgramPhase::kTrain) return std::nullopt;
    training.push_back(&rank);
    all.Add(rank);
  }
  if (training.empty()) return std::nullopt;
  if (all.IsLong(timeout_s)) {
    for (const RankView* rank : training) {
      if (*rank->step == all.lowest_step && all.lowest_step < all.step) {
        all.behind.push_back(rank->rank);
      }
    }
    return all;
  }
  for (const RankView* rank : training) {
    Stand one{.longest_s = all.longest_s};
    one.Add(*rank);
    // One that waits for others is not the one to name.
    if (!one.IsLong(timeout_s) || WaitsInGroup(*rank)) continue;
    some.longest_s = all.longest_s;
    some.Add(*rank);
    some.ranks.push_back(rank->rank);
  }
  return some.ranks.empty() ? std::nullopt : std::optional(some);
}

std::string StandText(const RankIndex& ranks, const Stand& stand) {
  const std::string who =
      stand.ranks.empty()
          ? "no step has ended"
          : absl::StrCat(ranks.Named(stand.ranks),
                         stand.ranks.size() == 1 ? " has ended no step" : " have ended no step");
  std::string text =
      absl::StrCat(who, " for ", SpanText(stand.for_s), ", the last was ", NumberText(stand.step));
  if (!stand.behind.empty()) {
    absl::StrAppend(&text, "; ", ranks.Named(stand.behind),
                    stand.behind.size() == 1 ? " is" : " are", " behind, at ",
                    NumberText(stand.lowest_step));
  }
  if (stand.longest_s > 0) {
    absl::StrAppend(&text, "; the longest of this round took ", StepTimeText(stand.longest_s));
  }
  if (!stand.ranks.empty()) absl::StrAppend(&text, "; the other ranks go on");
  return text;
}

}  // namespace

std::vector<int> ProgressWatch::StoppedRanks(TimePoint now, const RankIndex& ranks, double& for_s) {
  std::vector<int> stopped;
  for (const SeenRank& seen : ranks.all()) {
    const int rank = seen.view->rank;
    if (!seen.is_stopped()) {
      stopped_since_.erase(rank);
      continue;
    }
    const double stopped_s = SecondsOf(now - stopped_since_.emplace(rank, now).first->second);
    if (stopped_s < SecondsOf(policy_.hang_timeout)) continue;
    stopped.push_back(rank);
    for_s = std::max(for_s, stopped_s);
  }
  return stopped;
}

bool ProgressWatch::IsConfirmed(TimePoint now, int64_t step) {
  if (!sight_ || sight_->step != step) sight_ = {now, step};
  return !over_.empty() || now - sight_->since >= policy_.confirmed_after;
}

// A stopped rank is why steps stand, where they do, or a matter of its own.
std::optional<Problem> ProgressWatch::Find(TimePoint now, const RankIndex& ranks,
                                           std::vector<int>& behind) {
  const double timeout_s = SecondsOf(policy_.hang_timeout);
  if (timeout_s <= 0) return std::nullopt;
  Problem problem{.kind = "no_progress"};
  std::optional<Stand> stand = StandOf(ranks, timeout_s);
  if (!stand) sight_.reset();
  if (stand && !IsConfirmed(now, stand->step)) stand.reset();
  const std::vector<int> stopped = StoppedRanks(now, ranks, problem.since_s);
  const std::string why =
      stopped.empty() ? ""
                      : absl::StrCat(ranks.Named(stopped), stopped.size() == 1 ? " is" : " are",
                                     " stopped by a signal");
  if (stand && (stand->ranks.empty() || stopped.empty())) {
    problem.ranks = stand->ranks;
    problem.since_s = stand->for_s;
    problem.text = StandText(ranks, *stand);
    behind = stand->behind;
    if (!why.empty()) absl::StrAppend(&problem.text, "; ", why);
  } else if (!stopped.empty()) {
    problem.ranks = stopped;
    problem.text = absl::StrCat(why, " for ", SpanText(problem.since_s));
  } else {
    return std::nullopt;
  }
  return problem;
}

ProgressSeen ProgressWatch::Look(TimePoint now, const RankIndex& ranks, Explained explained) {
  ProgressSeen seen;
  std::optional<Problem> problem = Find(now, ranks, seen.behind);
  if (!problem) {
    if (!over_.empty()) seen.lines.push_back(std::move(over_));
    over_.clear();
    return seen;
  }
  std::string over =
      problem->ranks.empty()
          ? absl::StrCat("the job goes on: no step had ended for ", SpanText(problem->since_s))
          : absl::StrCat(ranks.Named(problem->ranks),
                         problem->ranks.size() == 1 ? " goes on" : " go on", " after ",
                         SpanText(problem->since_s));
  // What is told of the hang, or soon will be, is enough: a step is always older than the wait in
  // it. When that is over this is, too.
  if (explained == Explained::kYes || (explained == Explained::kSoon && over_.empty())) {
    if (!over_.empty()) over_ = std::move(over);
    return seen;
  }
  seen.is_new = over_.empty();
  if (seen.is_new) {
    seen.lines.push_back(absl::StrCat(problem->text, "; `ddprun dump` shows where ranks are"));
  }
  over_ = std::move(over);
  seen.problem = std::move(problem);
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
