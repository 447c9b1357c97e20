#include "launcher/status/hang_words.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/status/judge_words.h"

namespace ddprun::launcher {
namespace {

// So many different things that late ranks do are told.
constexpr size_t kMaxDoings = 3;

std::string WaitPlace(const std::string& wait, bool is_one) {
  if (wait == "do_signal_stop" || wait == "ptrace_stop")
    return is_one ? "is stopped" : "are stopped";
  const bool sleeps = absl::StrContains(wait, "nanosleep");
  if (is_one) return absl::StrCat(sleeps ? "sleeps in " : "waits in ", wait);
  return absl::StrCat(sleeps ? "sleep in " : "wait in ", wait);
}

// What the rank does instead of coming, as a predicate. Empty: not known.
std::string Doing(const SeenRank* seen, bool is_one) {
  if (seen == nullptr || seen->is_silent) return is_one ? "is not heard of" : "are not heard of";
  const RankView& rank = *seen->view;
  if (seen->has_ended()) {
    const std::string how = rank.end.empty() ? "" : absl::StrCat(" (", rank.end, ")");
    return absl::StrCat(is_one ? "has ended" : "have ended", how);
  }
  if (!seen->is_running()) return is_one ? "is starting" : "are starting";
  if (rank.cpu && std::isfinite(*rank.cpu) && *rank.cpu >= 0.5) {
    return is_one ? absl::StrFormat("computes (%.1f cores)", std::min(*rank.cpu, 1e6)) : "compute";
  }
  if (!rank.wait.empty()) return WaitPlace(rank.wait, is_one);
  if (rank.idle_s && SaneSeconds(*rank.idle_s) >= 1) {
    if (!is_one) return "use no CPU time";
    return absl::StrCat("has used no CPU time for ", SpanText(*rank.idle_s));
  }
  return "";
}

// "; it computes (1.0 cores)", "; rank 5 sleeps in nanosleep, ranks 6-7 compute".
std::string DoingsText(const RankIndex& index, const std::vector<int>& ranks) {
  if (ranks.size() == 1) {
    const SeenRank* seen = index.Find(ranks[0]);
    if (seen == nullptr || seen->is_silent) return "; its node is silent";
    const std::string doing = Doing(seen, true);
    return doing.empty() ? "" : absl::StrCat("; it ", doing);
  }
  std::map<std::string, std::vector<int>> doings;
  for (const int rank : ranks) doings[Doing(index.Find(rank), false)].push_back(rank);
  doings.erase("");
  std::vector<const std::vector<int>*> most;
  for (const auto& doing : doings) most.push_back(&doing.second);
  std::stable_sort(most.begin(), most.end(),
                   [](const auto* a, const auto* b) { return a->size() > b->size(); });
  std::string out;
  for (size_t i = 0; i < std::min(most.size(), kMaxDoings); ++i) {
    const std::vector<int>& those = *most[i];
    const std::string doing = Doing(index.Find(those[0]), those.size() == 1);
    const std::string who = those.size() == ranks.size() ? "they" : SomeRanksText(those);
    absl::StrAppend(&out, i == 0 ? "; " : ", ", who, " ", doing);
  }
  return out;
}

// All have come, and it does not end.
std::string EndlessText(const RankIndex& ranks, const GroupWait& wait) {
  const std::string span = SpanText(wait.waiting_s);
  const std::string operation = OperationText(wait);
  if (wait.is_partly_done) {
    return absl::StrCat(ranks.Named(wait.waiting), ByCount(wait.waiting.size(), " is", " are"),
                        " in ", operation, " for ", span, ", which has ended for the others",
                        DoingsText(ranks, wait.waiting));
  }
  const std::string who = static_cast<int>(wait.waiting.size()) == ranks.world_size()
                              ? std::string("all ranks")
                              : ranks.Named(wait.waiting);
  const bool is_one = wait.waiting.size() == 1 && ranks.world_size() > 1;
  const std::vector<int> stopped = StoppedOf(ranks, wait.waiting);
  const std::string why =
      stopped.empty() ? ""
                      : absl::StrCat("; ", ranks.Named(stopped),
                                     ByCount(stopped.size(), " is stopped", " are stopped"));
  return absl::StrCat(who, is_one ? " is in " : " are in ", operation, " for ", span,
                      " and it does not end", why);
}

std::string CycleText(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                      const Holdup& holdup) {
  std::string out;
  double waiting_s = SaneSeconds(waits[holdup.wait].waiting_s);
  size_t named = 0;
  for (const size_t i : holdup.ends) {
    waiting_s = std::min(waiting_s, waits[i].waiting_s);
    if (++named > 4) continue;
    const std::vector<int>& waiting = waits[i].waiting;
    absl::StrAppend(&out, named == 1 ? "" : ", ", ranks.Named(waiting),
                    ByCount(waiting.size(), " is in ", " are in "), OperationText(waits[i]));
  }
  return absl::StrCat("ranks wait for each other in different groups for ", SpanText(waiting_s),
                      ": ", out);
}

}  // namespace

std::string OperationText(const GroupWait& wait) {
  std::string out = absl::StrCat(wait.op, " #", NumberText(wait.number));
  if (!wait.group.empty()) absl::StrAppend(&out, " of group ", wait.group);
  return out;
}

std::string HangText(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                     const Holdup& holdup) {
  if (holdup.is_cycle) return CycleText(ranks, waits, holdup);
  const GroupWait& wait = waits[holdup.wait];
  if (holdup.to_blame.empty() && wait.unknown_late == 0) return EndlessText(ranks, wait);
  const std::string end =
      absl::StrCat(" not come to ", OperationText(wait), " for ", SpanText(wait.waiting_s), "; ");
  const std::string others = absl::StrCat(SomeRanksText(holdup.waiting),
                                          ByCount(holdup.waiting.size(), " waits", " wait"));
  if (holdup.to_blame.empty()) {
    return absl::StrCat(wait.unknown_late, " of the group's ranks ",
                        wait.unknown_late == 1 ? "has" : "have", end, others,
                        "; which they are is not known");
  }
  const size_t count = holdup.to_blame.size();
  return absl::StrCat(ranks.Named(holdup.to_blame), ByCount(count, " has", " have"), end, others,
                      ByCount(count, " for it", " for them"), DoingsText(ranks, holdup.to_blame));
}

std::string WaitingText(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                        const Holdup& holdup, const std::vector<int>& excused, const Excuse& why) {
  const GroupWait& wait = waits[holdup.wait];
  const std::string span = SpanText(wait.waiting_s);
  if (!excused.empty()) {
    return absl::StrCat("waiting for ", ranks.Named(excused), ", which ",
                        ByCount(excused.size(), why.of_one, why.of_many), ", for ", span);
  }
  if (!holdup.to_blame.empty() && !holdup.is_cycle) {
    return absl::StrCat("waiting in ", OperationText(wait), " for ", ranks.Named(holdup.to_blame),
                        " for ", span);
  }
  return absl::StrCat("waiting for ", OperationText(wait), " to end, for ", span);
}

std::string WaitPlacesText(const std::vector<const RankView*>& ranks) {
  std::map<std::string, int> places;
  for (const RankView* rank : ranks) {
    if (!rank->wait.empty()) ++places[rank->wait];
  }
  std::vector<std::pair<std::string, int>> most(places.begin(), places.end());
  std::stable_sort(most.begin(), most.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> names;
  for (const auto& [place, count] : most) names.push_back(absl::StrCat(place, " (", count, ")"));
  return SomeNamesText(names);
}

}  // namespace ddprun::launcher
