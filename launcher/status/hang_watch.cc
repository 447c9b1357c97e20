#include "launcher/status/hang_watch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/status/judge_words.h"

namespace ddprun::launcher {
namespace {

// Less of a core is no work: threads of libraries wake up now and then in a program that sleeps.
constexpr double kIdleCores = 0.05;
// A wait that has lasted this part of --hang-timeout may well be a hang.
constexpr double kComing = 0.5;
// So many of one look are told, and problems are listed.
constexpr size_t kMaxTold = 8;
constexpr size_t kMaxListed = 64;

bool IsHeardOf(const SeenRank* seen) { return seen != nullptr && !seen->is_silent; }

// A program that says so is about something that others have to wait for.
bool IsInPhase(const SeenRank* seen, ProgramPhase phase) {
  return IsHeardOf(seen) && seen->is_running() && seen->view->phase == phase;
}

// That end of the holdup which has been told of, if one has.
template <typename Hangs>
bool LeadWithTold(const std::vector<GroupWait>& waits, const Hangs& hangs, Holdup& holdup) {
  for (const size_t end : holdup.ends) {
    const auto told = hangs.find(waits[end].key);
    if (told == hangs.end() || told->second.number != waits[end].number) continue;
    holdup.wait = end;
    return true;
  }
  return false;
}

void AddHang(const GroupWait& wait, const std::vector<int>& ranks, const std::string& text,
             HangsSeen& seen) {
  if (seen.problems.size() >= kMaxListed) return;
  seen.problems.push_back({"hang", text, ranks, "", wait.waiting_s});
}

// Where all have come: who is stopped within, or for whom it does not end though it has for others.
std::vector<int> ToBlame(const RankIndex& ranks, const GroupWait& wait, const Holdup& holdup) {
  if (!holdup.to_blame.empty() || holdup.is_cycle) return holdup.to_blame;
  std::vector<int> stopped = StoppedOf(ranks, wait.waiting);
  if (!stopped.empty()) return stopped;
  return wait.is_partly_done ? wait.waiting : holdup.to_blame;
}

}  // namespace

bool HangWatch::IsPatientWith(const SeenRank& rank, double waiting_s) const {
  const double patience_s = SecondsOf(policy_.first_step_patience);
  if (waiting_s >= std::max(patience_s, SecondsOf(policy_.hang_timeout))) return false;
  if (rank.is_silent || rank.has_ended()) return false;
  if (!rank.is_running()) return true;
  const RankView& view = *rank.view;
  if (view.step) return false;
  // A program that reports nothing has its first step some time after its start.
  const bool is_young = view.up_s && SaneSeconds(*view.up_s) < patience_s;
  if (view.phase == ProgramPhase::kUnknown && !is_young) return false;
  if (view.cpu && std::isfinite(*view.cpu) && *view.cpu < kIdleCores) return false;
  return !view.idle_s || SaneSeconds(*view.idle_s) < SecondsOf(policy_.hang_timeout);
}

// Where some of the late ranks are excused, it is not known whether the others are at fault: they
// may wait for the same thing in another way.
HangWatch::Verdict HangWatch::JudgeLate(const RankIndex& ranks, const GroupWait& wait,
                                        const Holdup& holdup, bool is_told) const {
  const double timeout_s = SecondsOf(policy_.hang_timeout);
  // Of a late rank that has been told of, an older view is no news.
  const double late_s = is_told ? wait.waiting_s : std::min(wait.waiting_s, wait.late_s);
  const bool is_long = timeout_s > 0 && late_s >= timeout_s;
  std::vector<int> checkpoint, evaluation, first_step, elsewhere;
  for (const int rank : holdup.to_blame) {
    const SeenRank* seen = ranks.Find(rank);
    if (IsInPhase(seen, ProgramPhase::kCheckpoint)) checkpoint.push_back(rank);
    if (IsInPhase(seen, ProgramPhase::kEvaluation)) evaluation.push_back(rank);
    if (!is_long || !IsHeardOf(seen) || seen->has_ended()) continue;
    if (IsPatientWith(*seen, wait.waiting_s)) first_step.push_back(rank);
    const auto still_s = StillSeconds(*seen->view);
    if (still_s && *still_s < timeout_s) elsewhere.push_back(rank);
  }
  if (!checkpoint.empty())
    return {false, checkpoint, {"writes a checkpoint", "write a checkpoint"}};
  if (!evaluation.empty()) return {false, evaluation, {"evaluates", "evaluate"}};
  if (!first_step.empty()) {
    return {false, first_step, {"is slow to its first step", "are slow to their first step"}};
  }
  if (!elsewhere.empty()) return {false, elsewhere, {"goes on elsewhere", "go on elsewhere"}};
  return {.is_hang = is_long, .is_coming = timeout_s > 0 && late_s >= kComing * timeout_s};
}

HangWatch::Verdict HangWatch::Judge(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                                    const Holdup& holdup, bool is_told) const {
  const GroupWait& wait = waits[holdup.wait];
  if (!holdup.is_cycle && !holdup.to_blame.empty()) {
    return JudgeLate(ranks, wait, holdup, is_told);
  }
  double waiting_s = wait.waiting_s;
  for (const size_t i : holdup.is_cycle ? holdup.ends : std::vector<size_t>{}) {
    waiting_s = std::min(waiting_s, waits[i].waiting_s);
  }
  if (policy_.hang_timeout <= Duration::zero()) return {};
  const double timeout_s = SecondsOf(policy_.hang_timeout);
  if (waiting_s < timeout_s) return {.is_coming = waiting_s >= kComing * timeout_s};
  if (holdup.is_cycle || wait.unknown_late > 0) return {.is_hang = true};
  // All have come. The first operations may carry a whole model over a slow network.
  for (const int rank : wait.waiting) {
    const SeenRank* seen = ranks.Find(rank);
    if (seen != nullptr && IsPatientWith(*seen, waiting_s)) return {};
  }
  return {.is_hang = true};
}

void HangWatch::See(TimePoint now, const std::vector<GroupWait>& waits,
                    const std::vector<Holdup>& holdups) {
  std::map<uint64_t, Sight> sights;
  for (const Holdup& holdup : holdups) {
    const GroupWait& wait = waits[holdup.wait];
    const auto before = sights_.find(wait.key);
    if (before != sights_.end() && before->second.number == wait.number &&
        before->second.to_blame == holdup.to_blame && before->second.places == wait.places) {
      sights.insert(sights_.extract(before));
      continue;
    }
    sights[wait.key] = {
        .since = now, .number = wait.number, .to_blame = holdup.to_blame, .places = wait.places};
  }
  sights_ = std::move(sights);
}

// The words of now must be later ones than those of the first look.
bool HangWatch::IsConfirmed(TimePoint now, const GroupWait& wait) const {
  const auto sight = sights_.find(wait.key);
  if (sight == sights_.end()) return false;
  const Duration seen_for = now - sight->second.since;
  return seen_for >= policy_.confirmed_after && wait.asked_s < SecondsOf(seen_for);
}

bool HangWatch::MayRestart(const RankIndex& ranks, const GroupWait& wait,
                           const Holdup& holdup) const {
  if (wait.unknown_late > 0) return false;
  for (const int rank : holdup.to_blame) {
    if (!IsHeardOf(ranks.Find(rank))) return false;
  }
  for (const SeenRank& seen : ranks.all()) {
    if (IsInPhase(&seen, ProgramPhase::kEvaluation)) return false;
    if (IsInPhase(&seen, ProgramPhase::kCheckpoint)) return false;
  }
  return true;
}

void HangWatch::AddLinks(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                         const std::vector<Holdup>& holdups, std::map<uint64_t, Hang>& hangs,
                         HangsSeen& seen) const {
  for (size_t i = 0; i < waits.size(); ++i) {
    const GroupWait& wait = waits[i];
    const auto told = hangs_.find(wait.key);
    if (told == hangs_.end() || told->second.number != wait.number) continue;
    const bool is_end = std::any_of(holdups.begin(), holdups.end(), [i](const Holdup& holdup) {
      return std::find(holdup.ends.begin(), holdup.ends.end(), i) != holdup.ends.end();
    });
    if (is_end) continue;
    hangs[wait.key] = {wait.number, OperationText(wait), wait.waiting_s, told->second.is_named};
    const Holdup link{.wait = i, .to_blame = wait.late, .waiting = wait.waiting};
    AddHang(wait, wait.late, HangText(ranks, waits, link), seen);
  }
}

void HangWatch::TellOver(const std::map<uint64_t, Hang>& hangs, HangsSeen& seen) const {
  for (const auto& [key, hang] : hangs_) {
    const auto still = hangs.find(key);
    if (still != hangs.end() && still->second.number == hang.number) continue;
    if (seen.lines.size() >= kMaxTold) return;
    seen.lines.push_back(
        absl::StrCat("the hang in ", hang.operation, " is over after ", SpanText(hang.for_s)));
  }
}

HangsSeen HangWatch::Look(TimePoint now, const RankIndex& ranks) {
  HangsSeen seen;
  const std::vector<GroupWait> waits = FindGroupWaits(ranks);
  std::vector<Holdup> holdups = FindHoldups(waits);
  std::vector<bool> is_told;
  for (Holdup& holdup : holdups) is_told.push_back(LeadWithTold(waits, hangs_, holdup));
  See(now, waits, holdups);
  std::map<uint64_t, Hang> hangs;
  for (size_t i = 0; i < holdups.size(); ++i) {
    const Holdup& holdup = holdups[i];
    const GroupWait& wait = waits[holdup.wait];
    const Verdict verdict = Judge(ranks, waits, holdup, is_told[i]);
    if (seen.waiting_line.empty() && wait.waiting_s >= SecondsOf(policy_.waiting_notice_delay)) {
      seen.waiting_line = WaitingText(ranks, waits, holdup, verdict.excused, verdict.why);
    }
    seen.is_coming |= verdict.is_hang || verdict.is_coming;
    if (!verdict.is_hang || !(is_told[i] || IsConfirmed(now, wait))) continue;
    const std::string text = HangText(ranks, waits, holdup);
    const std::vector<int> to_blame = ToBlame(ranks, wait, holdup);
    // Told again when the ranks are known that were not: a busy one answers late.
    const bool was_named = is_told[i] && hangs_.at(wait.key).is_named;
    const bool is_named = was_named || wait.unknown_late == 0;
    const bool is_new = !is_told[i] || is_named != was_named;
    hangs[wait.key] = {wait.number, OperationText(wait), wait.waiting_s, is_named};
    AddHang(wait, to_blame, text, seen);
    if (is_new && seen.lines.size() < kMaxTold) seen.lines.push_back(text);
    if (seen.hang) continue;
    seen.hang = HangFound{.is_new = is_new,
                          .ranks = to_blame,
                          .text = text,
                          .may_restart = MayRestart(ranks, wait, holdup)};
  }
  AddLinks(ranks, waits, holdups, hangs, seen);
  TellOver(hangs, seen);
  hangs_ = std::move(hangs);
  return seen;
}

std::vector<std::string> HangWatch::Forget() {
  std::vector<std::string> lines;
  for (const auto& [key, hang] : hangs_) {
    if (lines.size() >= kMaxTold) break;
    lines.push_back(absl::StrCat("the hang in ", hang.operation,
                                 " has ended with its round, after ", SpanText(hang.for_s)));
  }
  hangs_.clear();
  sights_.clear();
  return lines;
}

}  // namespace ddprun::launcher
