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
  const bool is_patient = !round.is_first && now < patience_ends;
  if (candidates.ready >= policy.max_nodes && !(is_patient && candidates.absent_members > 0)) {
    return {.ready = true, .reason = absl::StrCat(count, ", complete")};
  }
  const int missing = NodesNeeded(policy) - candidates.ready;
  if (candidates.absent > 0 && (missing > 0 ? !round.is_first : is_patient)) {
    QuorumVerdict wait{
        .reason = absl::StrCat(count, ", waiting for ", AbsentText(candidates), " to join again")};
    if (missing <= 0) wait.retry_at = patience_ends;
    return wait;
  }
  if (missing > 0) {
    const std::string& place = policy.meeting_place;
    return {.reason = absl::StrCat(count, ", waiting for ", missing, " more",
                                   place.empty() ? "" : " at ", place)};
  }
  if (!round.is_first) {
    return {.ready = true,
            .reason = absl::StrCat(count, candidates.absent == 0 ? ", all that live" : "")};
  }
  const TimePoint until = round.minimum_reached_at.value_or(now) + policy.last_call;
  if (now >= until) return {.ready = true, .reason = absl::StrCat(count, ", last call over")};
  return {.reason = absl::StrCat(count, ", last call"), .retry_at = until, .is_countdown = true};
}

}  // namespace ddprun::rendezvous
