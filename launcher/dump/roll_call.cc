#include "launcher/dump/roll_call.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxPieces = 8;
constexpr size_t kMaxPlaces = 4;

bool ComesBefore(const RankGroup& a, const RankGroup& b) {
  if (a.where.empty() != b.where.empty()) return b.where.empty();
  if (a.ranks.size() != b.ranks.size()) return a.ranks.size() > b.ranks.size();
  return a.ranks.front() < b.ranks.front();
}

// Groups for the sentence: a loop's ranks are in different frames of the same function, and one
// place is named once. The stacks are those of one of them.
std::vector<RankGroup> ByPlace(const std::vector<RankGroup>& groups) {
  std::map<std::tuple<std::string, std::string, bool>, RankGroup> places;
  for (const RankGroup& group : groups) {
    RankGroup& place = places[{group.where, group.unknown_why, group.is_waiting}];
    std::vector<int> ranks = std::move(place.ranks);
    ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
    std::sort(ranks.begin(), ranks.end());
    place = group;
    place.ranks = std::move(ranks);
  }
  std::vector<RankGroup> sorted;
  for (auto& [key, place] : places) sorted.push_back(std::move(place));
  std::sort(sorted.begin(), sorted.end(), ComesBefore);
  return sorted;
}

// "rank 1", "ranks 0, 2-3".
std::string Subject(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RankListText(ranks));
}

// "waits in X", "are in Y", "has ended", "is not known: stack: not permitted". Not that they wait
// together: of a place without a line, or in a later step, that may be untrue.
std::string Predicate(const RankGroup& place) {
  const bool is_one = place.ranks.size() == 1;
  if (place.where.empty() && place.unknown_why == kHasEnded) {
    return is_one ? "has ended" : "have ended";
  }
  if (place.where.empty()) {
    return absl::StrCat(is_one ? "is" : "are", " not known", place.unknown_why.empty() ? "" : ": ",
                        place.unknown_why);
  }
  const char* verb = place.is_waiting ? (is_one ? "waits" : "wait") : (is_one ? "is" : "are");
  return absl::StrCat(verb, " ", place.where);
}

}  // namespace

RankStack MakeRankStack(int rank, const Stack& stack) {
  RankStack made;
  made.rank = rank;
  made.where = WhereText(stack);
  made.is_waiting = IsWaiting(stack);
  if (stack.threads.empty()) return made;
  for (const Frame& frame : stack.threads.front().frames) {
    absl::StrAppend(&made.stack, FrameText(frame), "\n");
  }
  return made;
}

std::vector<RankGroup> GroupRanks(std::vector<RankStack> ranks) {
  std::map<std::tuple<std::string, std::string, std::string>, RankGroup> found;
  std::sort(ranks.begin(), ranks.end(),
            [](const RankStack& a, const RankStack& b) { return a.rank < b.rank; });
  for (RankStack& rank : ranks) {
    RankGroup& group = found[{rank.stack, rank.where, rank.where.empty() ? rank.unknown_why : ""}];
    if (group.ranks.empty()) {
      group = {.ranks = {},
               .where = rank.where,
               .unknown_why = rank.where.empty() ? rank.unknown_why : "",
               .is_waiting = rank.is_waiting,
               .stack = rank.stack};
    }
    // One that was caught between two waits does not make a group of its own.
    group.is_waiting |= rank.is_waiting;
    group.ranks.push_back(rank.rank);
  }
  std::vector<RankGroup> groups;
  for (auto& [key, group] : found) groups.push_back(std::move(group));
  std::sort(groups.begin(), groups.end(), ComesBefore);
  return groups;
}

std::string RankListText(const std::vector<int>& ranks) {
  std::vector<std::string> pieces;
  size_t left = ranks.size();
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (pieces.size() == kMaxPieces) break;
    pieces.push_back(end - i == 1 ? absl::StrCat(ranks[i])
                                  : absl::StrCat(ranks[i], "-", ranks[end - 1]));
    left -= end - i;
    i = end;
  }
  return absl::StrCat(absl::StrJoin(pieces, ", "),
                      left == 0 ? "" : absl::StrCat(" and ", left, " more"));
}

std::string RollCallSentence(const std::vector<RankGroup>& groups) {
  const std::vector<RankGroup> places = ByPlace(groups);
  size_t total = 0;
  for (const RankGroup& place : places) total += place.ranks.size();
  std::vector<std::string> parts;
  std::vector<int> others;
  for (size_t i = 0; i < places.size(); ++i) {
    const RankGroup& place = places[i];
    if (i >= kMaxPlaces) {
      others.insert(others.end(), place.ranks.begin(), place.ranks.end());
    } else if (i == 0 && place.ranks.size() == total && total > 1) {
      parts.push_back(absl::StrCat("all ", total, " ranks ", Predicate(place)));
    } else if (i == 0 && place.ranks.size() > 1) {
      parts.push_back(absl::StrCat(place.ranks.size(), " of ", total, " ranks (",
                                   RankListText(place.ranks), ") ", Predicate(place)));
    } else {
      parts.push_back(absl::StrCat(Subject(place.ranks), " ", Predicate(place)));
    }
  }
  if (!others.empty()) {
    std::sort(others.begin(), others.end());
    parts.push_back(absl::StrCat(
        Subject(others), others.size() == 1 ? " is" : " are", " at ", places.size() - kMaxPlaces,
        places.size() - kMaxPlaces == 1 ? " other place" : " other places"));
  }
  return absl::StrJoin(parts, "; ");
}

std::string RollCallText(const std::vector<RankGroup>& groups, size_t max_groups) {
  std::string text = RollCallSentence(groups);
  if (!text.empty()) text += "\n";
  std::vector<int> others;
  for (size_t i = 0; i < groups.size(); ++i) {
    const RankGroup& group = groups[i];
    if (i >= max_groups) {
      others.insert(others.end(), group.ranks.begin(), group.ranks.end());
      continue;
    }
    absl::StrAppend(&text, "\n", Subject(group.ranks), ":\n");
    if (group.stack.empty()) {
      absl::StrAppend(&text, "    (no stack) ",
                      group.where.empty() ? group.unknown_why : group.where, "\n");
    }
    for (size_t at = 0; at < group.stack.size();) {
      const size_t end = std::min(group.stack.find('\n', at), group.stack.size());
      absl::StrAppend(&text, "    ", group.stack.substr(at, end - at), "\n");
      at = end + 1;
    }
  }
  if (!others.empty()) {
    std::sort(others.begin(), others.end());
    absl::StrAppend(&text, "\nand ", groups.size() - max_groups, " more, of ", Subject(others),
                    "\n");
  }
  return text;
}

}  // namespace ddprun::launcher
