#include "launcher/status/straggler_watch.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ddp/rank_balance.h"
#include "launcher/status/judge_words.h"

namespace ddprun::launcher {
namespace {

// From this share of the time on, the wait for a core is told.
constexpr double kMuch = 0.1;

bool Trains(const SeenRank& seen) {
  const RankView& rank = *seen.view;
  if (!seen.is_running() || seen.is_silent || !rank.step || !rank.step_s || !rank.self_s)
    return false;
  if (rank.phase != ProgramPhase::kTrain && rank.phase != ProgramPhase::kUnknown) return false;
  return IsTime(*rank.step_s) && *rank.step_s > 0 && IsTime(*rank.self_s);
}

// The lower one of two, as SlowRanks takes it.
double MedianSelfSeconds(const std::vector<const SeenRank*>& training) {
  std::vector<double> times;
  for (const SeenRank* seen : training) times.push_back(SaneSeconds(*seen->view->self_s));
  const auto middle = times.begin() + static_cast<ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The node whose ranks are slow, all of them and no other's. Null: it is not a matter of one node.
const NodeView* SlowNode(const RankIndex& ranks, const std::vector<int>& slow) {
  const SeenRank* first = ranks.Find(slow.front());
  if (first == nullptr || slow.size() < 2 || first->node->ranks.size() != slow.size())
    return nullptr;
  if (ranks.all().size() == slow.size()) return nullptr;
  for (const int rank : slow) {
    const SeenRank* seen = ranks.Find(rank);
    if (seen == nullptr || seen->node != first->node) return nullptr;
  }
  return first->node->name.empty() ? nullptr : first->node;
}

}  // namespace

void StragglerWatch::See(TimePoint now, const std::vector<const SeenRank*>& training) {
  std::vector<ddp::RankSteps> steps;
  for (const SeenRank* seen : training) {
    const double step_s = SaneSeconds(*seen->view->step_s);
    const double self_s = SaneSeconds(*seen->view->self_s);
    steps.push_back({.step_ms = step_s * 1000, .exposed_ms = (step_s - self_s) * 1000});
  }
  std::vector<bool> is_slow(training.size());
  for (const int i : ddp::SlowRanks(steps)) is_slow[static_cast<size_t>(i)] = true;
  const double usual_s = training.empty() ? 0 : MedianSelfSeconds(training);
  for (size_t i = 0; i < training.size(); ++i) {
    const RankView& rank = *training[i]->view;
    const auto at = sights_.find(rank.rank);
    if (!is_slow[i]) {
      if (at != sights_.end() && !IsConfirmed(at->second)) sights_.erase(at);
      continue;
    }
    Sight& sight = at != sights_.end() ? at->second : sights_[rank.rank];
    if (sight.looks == 0) sight.first = now;
    // The same steps looked at again show nothing new.
    if (sight.looks == 0 || sight.step != *rank.step) {
      ++sight.looks;
      sight.last = now;
    }
    sight.step = *rank.step;
    sight.self_s = SaneSeconds(*rank.self_s);
    sight.usual_s = usual_s;
    sight.core_wait_share = SaneSeconds(rank.core_wait_share.value_or(0));
  }
  std::erase_if(sights_,
                [&](const auto& sight) { return now - sight.second.last >= policy_.calm; });
}

bool StragglerWatch::IsConfirmed(const Sight& sight) const {
  return sight.looks >= policy_.straggler_looks &&
         sight.last - sight.first >= policy_.straggler_delay;
}

std::string StragglerWatch::Text(const RankIndex& ranks, const std::vector<int>& slow) const {
  const Sight* slowest = &sights_.at(slow.front());
  for (const int rank : slow) {
    if (sights_.at(rank).self_s > slowest->self_s) slowest = &sights_.at(rank);
  }
  // Another program or too many threads take the cores.
  const std::string cores =
      slowest->core_wait_share < kMuch
          ? ""
          : absl::StrFormat(". For %.0f %% of the time no core is free for %s",
                            std::min(slowest->core_wait_share, 1.0) * 100,
                            slow.size() == 1 ? "it" : "the slowest");
  const std::string self = StepTimeText(slowest->self_s);
  const std::string usual = StepTimeText(slowest->usual_s);
  if (const NodeView* node = SlowNode(ranks, slow)) {
    return absl::StrCat("node ", node->name, " is slow: its ", SomeRanksText(slow), " take up to ",
                        self, " a step by themselves, the others ", usual,
                        "; the others wait for them", cores);
  }
  if (slow.size() == 1) {
    return absl::StrCat(ranks.Named(slow), " is slow: it takes ", self,
                        " a step by itself, the others ", usual, "; they wait for it", cores);
  }
  return absl::StrCat(ranks.Named(slow), " are slow: they take up to ", self,
                      " a step by themselves, the others ", usual, "; the others wait for them",
                      cores);
}

StragglersSeen StragglerWatch::Look(TimePoint now, const RankIndex& ranks) {
  std::vector<const SeenRank*> training;
  for (const SeenRank& seen : ranks.all()) {
    if (Trains(seen)) training.push_back(&seen);
  }
  See(now, training);
  StragglersSeen seen;
  std::vector<int> slow;
  double since_s = 0;
  for (const auto& [rank, sight] : sights_) {
    if (!IsConfirmed(sight)) continue;
    slow.push_back(rank);
    since_s = std::max(since_s, SecondsOf(now - sight.first));
  }
  if (slow.empty()) {
    if (!told_.empty()) {
      seen.lines.push_back(
          absl::StrCat(told_names_, ByCount(told_.size(), " is", " are"), " no longer slow"));
    }
    told_.clear();
    return seen;
  }
  const std::string text = Text(ranks, slow);
  seen.problem = Problem{.kind = "straggler", .text = text, .ranks = slow, .since_s = since_s};
  if (const NodeView* node = SlowNode(ranks, slow)) seen.problem->node = node->host;
  const bool is_more = !std::includes(told_.begin(), told_.end(), slow.begin(), slow.end());
  if (is_more && (!told_at_ || now - *told_at_ >= policy_.calm)) {
    seen.lines.push_back(text);
    told_at_ = now;
    told_ = slow;
    told_names_ = ranks.Named(slow);
  }
  return seen;
}

void StragglerWatch::Forget() {
  sights_.clear();
  told_.clear();
}

}  // namespace ddprun::launcher
