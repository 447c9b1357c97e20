#include "launcher/status/group_waits.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "launcher/status/judge_words.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

constexpr double kShortestWait = 1;

struct Member {
  const SeenRank* seen = nullptr;
  const GroupView* group = nullptr;
  double still_s = 0;  // of the rank

  bool is_under_way() const { return group->called > group->done && !seen->has_ended(); }
  double age_s() const { return seen->age_s + SaneSeconds(group->asked_s.value_or(0)); }
  double blocked_s() const { return std::min(SaneSeconds(group->waiting_s), still_s); }
};

struct Members {
  uint64_t key = 0;
  std::vector<Member> members;  // by rank
};

// Infinite where nothing is known.
double StillOrForever(const RankView& rank) {
  double still_s = std::numeric_limits<double>::infinity();
  for (const GroupView& group : rank.groups) {
    // Of a group that was never used there is nothing to tell.
    if (group.key == 0 || group.called == 0 || !IsTime(group.quiet_s)) continue;
    still_s = std::min(still_s, group.quiet_s);
  }
  if (rank.step && IsTime(rank.step_age_s)) still_s = std::min(still_s, rank.step_age_s);
  // Nothing has stood for longer than the process.
  if (rank.up_s && IsTime(*rank.up_s)) still_s = std::min(still_s, *rank.up_s);
  return still_s;
}

// The groups in which somebody has waited for long.
std::vector<Members> FindMembers(const RankIndex& ranks) {
  std::vector<double> still;
  still.reserve(ranks.all().size());
  std::vector<uint64_t> keys;
  for (const SeenRank& seen : ranks.all()) {
    still.push_back(StillOrForever(*seen.view));
    for (const GroupView& group : seen.view->groups) {
      const Member member{.seen = &seen, .group = &group, .still_s = still.back()};
      if (group.key == 0 || !member.is_under_way() || member.blocked_s() < kShortestWait) continue;
      if (keys.empty() || keys.back() != group.key) keys.push_back(group.key);
    }
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<Members> found;
  for (const uint64_t key : keys) found.push_back({.key = key});
  if (found.empty()) return found;
  for (size_t i = 0; i < ranks.all().size(); ++i) {
    const SeenRank& seen = ranks.all()[i];
    for (const GroupView& group : seen.view->groups) {
      const auto at = std::lower_bound(keys.begin(), keys.end(), group.key);
      if (at == keys.end() || *at != group.key) continue;
      std::vector<Member>& members = found[static_cast<size_t>(at - keys.begin())].members;
      // One slot of a rank is as good as another with the same key.
      if (!members.empty() && members.back().seen == &seen) continue;
      members.push_back({.seen = &seen, .group = &group, .still_s = still[i]});
    }
  }
  return found;
}

bool HasManyGroups(const RankIndex& ranks) {
  uint64_t first = 0;
  for (const SeenRank& seen : ranks.all()) {
    for (const GroupView& group : seen.view->groups) {
      if (group.key == 0) continue;
      if (first == 0) first = group.key;
      if (group.key != first) return true;
    }
  }
  return false;
}

// Ranks that may belong to any group: nobody has seen them, or they have not said of which they
// are.
std::vector<int> Bare(const RankIndex& ranks) {
  std::vector<int> bare = ranks.unseen();
  for (const SeenRank& seen : ranks.all()) {
    if (seen.view->groups.empty()) bare.push_back(seen.view->rank);
  }
  std::sort(bare.begin(), bare.end());
  return bare;
}

// The members that do not list the group.
void AddMissing(const RankIndex& ranks, const std::vector<Member>& members,
                const std::vector<int>& bare, GroupWait& wait) {
  int size = 0;
  for (const Member& member : members) size = std::max(size, member.group->size);
  const int missing = std::min(size, ranks.world_size()) - static_cast<int>(members.size());
  if (missing <= 0) return;
  // Whoever is asked may not have answered yet: that it lists no group says nothing.
  if (members.front().group->asked_s) {
    wait.unknown_late = missing;
    return;
  }
  if (size < ranks.world_size()) {
    if (static_cast<int>(bare.size()) != missing) {
      wait.unknown_late = missing;
      return;
    }
    wait.late.insert(wait.late.end(), bare.begin(), bare.end());
  } else {
    size_t at = 0;
    for (int rank = 0; rank < ranks.world_size(); ++rank) {
      if (at < members.size() && members[at].seen->view->rank == rank) {
        ++at;
      } else {
        wait.late.push_back(rank);
      }
    }
  }
  std::sort(wait.late.begin(), wait.late.end());
}

// Since when, by the clock of the look, whoever waits longest has waited: all that is known of the
// late ones from before that moment says nothing.
double LateSeconds(const RankIndex& ranks, const GroupWait& wait, double began_s) {
  double late_s = wait.waiting_s;
  for (const int rank : wait.late) {
    const SeenRank* seen = ranks.Find(rank);
    if (seen == nullptr || seen->is_silent) continue;
    late_s = std::min(late_s, began_s - seen->age_s - wait.asked_s);
  }
  return std::max(0.0, late_s);
}

// Of no ranks: nobody waits for long in the lowest operation.
GroupWait WaitOf(const RankIndex& ranks, const Members& group, const std::vector<int>& bare) {
  GroupWait wait{.key = group.key, .op = "operation"};
  uint64_t lowest_done = std::numeric_limits<uint64_t>::max();
  for (const Member& member : group.members) {
    if (member.is_under_way()) lowest_done = std::min(lowest_done, member.group->done);
  }
  wait.number = lowest_done + 1;
  double began_s = 0;
  for (const Member& member : group.members) {
    const GroupView& view = *member.group;
    const int rank = member.seen->view->rank;
    wait.asked_s = std::max(wait.asked_s, member.age_s() - member.seen->age_s);
    wait.places.push_back({.rank = rank, .called = view.called, .done = view.done});
    if (view.done >= wait.number) {
      wait.is_partly_done = true;
    } else if (view.called < wait.number || member.seen->has_ended()) {
      wait.late.push_back(rank);
    } else {
      wait.waiting.push_back(rank);
      if (view.called == wait.number && !view.op.empty()) wait.op = view.op;
      if (member.blocked_s() > wait.waiting_s) {
        wait.waiting_s = member.blocked_s();
        began_s = wait.waiting_s + member.age_s();
      }
    }
  }
  if (wait.waiting_s < kShortestWait) return {};
  AddMissing(ranks, group.members, bare, wait);
  wait.late_s = LateSeconds(ranks, wait, began_s);
  wait.group = EscapeControl(group.members.front().group->name);
  return wait;
}

}  // namespace

std::optional<double> StillSeconds(const RankView& rank) {
  const double still_s = StillOrForever(rank);
  return IsTime(still_s) ? std::optional(SaneSeconds(still_s)) : std::nullopt;
}

std::vector<GroupWait> FindGroupWaits(const RankIndex& ranks) {
  std::vector<GroupWait> waits;
  const std::vector<Members> groups = FindMembers(ranks);
  if (groups.empty()) return waits;
  const bool has_many_groups = HasManyGroups(ranks);
  const std::vector<int> bare = Bare(ranks);
  for (const Members& group : groups) {
    GroupWait wait = WaitOf(ranks, group, bare);
    if (wait.waiting.empty()) continue;
    if (!has_many_groups) wait.group.clear();
    waits.push_back(std::move(wait));
  }
  return waits;
}

}  // namespace ddprun::launcher
