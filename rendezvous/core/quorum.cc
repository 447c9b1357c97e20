#include "rendezvous/core/quorum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/check.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

// "2 nodes (min 2, max 4)"; where the number is fixed "1 of 2 nodes".
std::string CountText(int ready, const Policy& policy) {
  if (NodesNeeded(policy) == policy.max_nodes) {
    return absl::StrCat(ready, " of ", Counted(policy.max_nodes, "node"));
  }
  return absl::StrCat(Counted(ready, "node"), " (min ", policy.min_nodes, ", max ",
                      policy.max_nodes, ")");
}

// "node b", "nodes b, c", "nodes b, c, d and 5 more".
std::string AbsentText(const Candidates& candidates) {
  const int unnamed = candidates.absent - static_cast<int>(candidates.absent_names.size());
  return absl::StrCat(candidates.absent == 1 ? "node " : "nodes ",
                      absl::StrJoin(candidates.absent_names, ", "),
                      unnamed > 0 ? absl::StrCat(" and ", unnamed, " more") : "");
}

QuorumVerdict NotYet(std::string reason, std::optional<TimePoint> retry_at) {
  return {.ready = false, .reason = reason, .topic = reason, .retry_at = retry_at};
}

}  // namespace

int NodesNeeded(const Policy& policy) {
  return policy.is_static ? policy.max_nodes : policy.min_nodes;
}

Candidates CountCandidates(const Membership& members, TimePoint now, Round last_round) {
  Candidates candidates;
  for (const auto& [id, member] : members.members()) {
    if (member.standing == Standing::kWaiting && member.is_connected) {
      ++candidates.ready;
      continue;
    }
    if (member.awaited_until.has_value()) {
      if (now >= *member.awaited_until) continue;
      candidates.recount_at =
          std::min(candidates.recount_at.value_or(TimePoint::max()), *member.awaited_until);
    }
    ++candidates.absent;
    const bool was_in_it = member.previous_round != Round{} && member.previous_round == last_round;
    if (was_in_it) ++candidates.absent_members;
    if (candidates.absent_names.size() < kNamedNodes) {
      candidates.absent_names.push_back(NodeName(member.info));
    }
  }
  return candidates;
}

QuorumVerdict DecideQuorum(TimePoint now, const FormingRound& round, const Candidates& candidates,
                           const Policy& policy) {
  DDP_CHECK(1 <= policy.min_nodes && policy.min_nodes <= policy.max_nodes);
  const std::string count = CountText(candidates.ready, policy);
  const TimePoint patience_ends = round.opened_at + policy.join_timeout;
  const bool would_displace =
      !round.is_first && candidates.absent_members > 0 && now < patience_ends;
  if (candidates.ready >= policy.max_nodes && !would_displace) {
    const std::string reason = absl::StrCat(count, ", complete");
    return {.ready = true, .reason = reason, .topic = reason, .retry_at = std::nullopt};
  }
  const int missing = NodesNeeded(policy) - candidates.ready;
  if (missing > 0 && candidates.absent > 0 && !round.is_first) {
    return NotYet(absl::StrCat(count, ", waiting for ", AbsentText(candidates), " to join again"),
                  std::nullopt);
  }
  if (missing > 0) {
    const std::string& place = policy.meeting_place;
    return NotYet(
        absl::StrCat(count, ", waiting for ", missing, " more", place.empty() ? "" : " at ", place),
        std::nullopt);
  }
  const TimePoint minimum_reached_at = round.minimum_reached_at.value_or(now);
  if (round.is_first) {
    const TimePoint until = minimum_reached_at + policy.last_call;
    if (now >= until) {
      const std::string reason = absl::StrCat(count, ", last call over");
      return {.ready = true, .reason = reason, .topic = reason, .retry_at = std::nullopt};
    }
    const std::string topic = absl::StrCat(count, ", last call");
    return {.ready = false,
            .reason = absl::StrCat(topic, " for ", DurationText(until - now), " more"),
            .topic = topic,
            .retry_at = until};
  }
  if (candidates.absent > 0 && now < patience_ends) {
    return NotYet(absl::StrCat(count, ", waiting for ", AbsentText(candidates), " to join again"),
                  patience_ends);
  }
  const std::string reason = absl::StrCat(count, candidates.absent == 0 ? ", all that live" : "");
  return {.ready = true, .reason = reason, .topic = reason, .retry_at = std::nullopt};
}

}  // namespace ddprun::rendezvous
