// How a round that an earlier coordinator sealed goes on under this one.
#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

bool State::MayReadopt(const Stamp& stamp) const {
  if (phase == Phase::kClosed) return false;
  if (phase == Phase::kReadopting) return IsThisRound(stamp) || IsNewer(stamp);
  if (phase == Phase::kOpen && round == Round{}) return true;
  // All nodes of an older round came back first, which was over without their knowing it.
  return is_readopted && IsNewer(stamp);
}

bool State::IsNewer(const Stamp& stamp) const {
  return stamp.instance == instance && std::tie(stamp.epoch, stamp.round) > std::tie(epoch, round);
}

bool State::IsMissingSeats() const {
  return !seats.empty() &&
         static_cast<int>(seats.size()) < seats.begin()->second.assignment.node_count;
}

bool State::IsThisRound(const Stamp& stamp) const {
  return round != Round{} && stamp.instance == instance && stamp.epoch == epoch &&
         stamp.round == round;
}

std::string State::FindContradiction(const NodeJoined& event) const {
  const bool is_late = phase == Phase::kDraining && IsMissingSeats();
  if (!event.held || event.held->coordinator_is_member || (!MayReadopt(event.stamp) && !is_late))
    return "";
  const Assignment& held = *event.held;
  const Policy& rules = PolicyFor(event);
  const int given_back = held.max_restarts - rules.max_restarts;
  const int most_given_back = rules.limits.budget_period > Duration{0} ? held.restart_count : 0;
  if (held.node_count < NodesNeeded(rules) || held.node_count > rules.max_nodes || given_back < 0 ||
      given_back > most_given_back) {
    return absl::StrCat("it has ", Counted(held.node_count, "node"), " and ", held.max_restarts,
                        " restarts");
  }
  const int end = held.first_rank + event.node.local_world_size;
  if (held.node_rank < 0 || held.node_rank >= held.node_count || held.first_rank < 0 ||
      end > held.world_size || held.restart_count < 0 || held.restart_count > held.max_restarts) {
    return absl::StrCat("node rank ", held.node_rank, " of ", held.node_count, ", ranks ",
                        held.first_rank, "..", end - 1, " of ", held.world_size);
  }
  return IsThisRound(event.stamp) ? FindOverlap(event) : "";
}

std::string State::FindOverlap(const NodeJoined& event) const {
  if (seats.empty()) return "";
  const Assignment& held = *event.held;
  const int end = held.first_rank + event.node.local_world_size;
  // Those that are seated agree with each other.
  const auto& [any_id, any_seat] = *seats.begin();
  const Assignment& any = any_seat.assignment;
  if (any.node_count != held.node_count || any.world_size != held.world_size ||
      any.restart_count != held.restart_count || any.max_restarts != held.max_restarts ||
      any.master_addr != held.master_addr || any.master_port != held.master_port) {
    return absl::StrCat("node ", any_id.value, " has another assignment");
  }
  if (const auto own = seats.find(event.node.id); own != seats.end()) {
    const Seat& before = own->second;
    const bool is_same = before.assignment.node_rank == held.node_rank &&
                         before.assignment.first_rank == held.first_rank &&
                         before.local_world_size == event.node.local_world_size;
    return is_same ? ""
                   : absl::StrCat("it held node rank ", before.assignment.node_rank, " before");
  }
  const auto overlap = [](const NodeId& id, const Assignment& other) {
    return absl::StrCat("node ", id.value, " holds node rank ", other.node_rank,
                        " and the ranks from ", other.first_rank, " on");
  };
  const auto above = seat_of_rank.lower_bound(held.node_rank);
  if (above != seat_of_rank.end()) {
    const Assignment& other = seats.at(above->second).assignment;
    if (other.node_rank == held.node_rank || other.first_rank < end) {
      return overlap(above->second, other);
    }
  }
  if (above != seat_of_rank.begin()) {
    const NodeId& id = std::prev(above)->second;
    const Seat& below = seats.at(id);
    if (below.assignment.first_rank + below.local_world_size > held.first_rank) {
      return overlap(id, below.assignment);
    }
  }
  const int count = static_cast<int>(seats.size()) + 1;
  const int ranks = seated_ranks + event.node.local_world_size;
  if (count > held.node_count) return "every place is held";
  if (count == held.node_count && ranks != held.world_size) {
    return absl::StrCat("its nodes have ", ranks, " of ", held.world_size, " ranks");
  }
  return "";
}

void State::Readopt(TimePoint now, const NodeJoined& event, Member& member) {
  const Stamp& stamp = event.stamp;
  const bool is_first = !IsThisRound(stamp);
  if (is_first) BeginReadopting(now, stamp, event.held->node_count);
  const size_t before = seats.size();
  TakeSeat(*event.held, member);
  if (seats.size() > before) leader_back_by = now + Membership::kReturnAfterClose;
  needs_telling = true;
  if (!is_first) return;
  // A node of the round that waits has no workers any more.
  for (const auto& [id, other] : members.members()) {
    if (other.standing != Standing::kWaiting || !IsThisRound(other.joined_with)) continue;
    DrainRound(now, DrainCause::kLoss,
               absl::StrCat("node ", members.NameOf(other), " lost its workers"));
    return;
  }
}

void State::BeginReadopting(TimePoint now, const Stamp& stamp, int nodes) {
  StopRunning(absl::StrCat("round ", round.value, " is over"));
  ClearSeats();
  ForgetOldRanks();
  ForgetFailures();
  gone.clear();
  phase = Phase::kReadopting;
  epoch = stamp.epoch;
  round = stamp.round;
  readopt_until = now + members.return_time(nodes);
  readopt_since = now - members.uncounted();
  left_of_round = 0;
  is_readopted = true;
  back.clear();
  for (const auto& [id, member] : members.members()) NoteBack(member);
  round_began = now - kOldestReport;
  running_since = now;
  hold_until = restart_hold_until = {};
  forming.is_first = false;
}

void State::NoteBack(const Member& member) {
  if (is_readopted && IsThisRound(member.joined_with)) back.insert(member.info.id);
}

bool State::AwaitsHolders() const {
  if (!is_readopted) return false;
  const auto of_round = std::ranges::count_if(members.members(), [this](const auto& member) {
    return IsThisRound(member.second.joined_with);
  });
  const bool has_spare = of_round < static_cast<std::ptrdiff_t>(members.members().size());
  // Where all have come and one has stayed there is no newer round: that would have had it, too.
  const bool are_all_back = static_cast<int>(back.size()) >= round_size.nodes;
  return has_spare && !(are_all_back && of_round > 0);
}

void State::TakeSeat(const Assignment& assignment, Member& member) {
  restart_count = std::max(restart_count, assignment.restart_count);
  spent.given_back = std::max(spent.given_back, assignment.max_restarts - policy.max_restarts);
  round_size = {.nodes = assignment.node_count, .ranks = assignment.world_size};
  member.standing = Standing::kRunning;
  member.previous_rank = assignment.node_rank;
  member.awaited_until.reset();
  member.waits_since.reset();
  member.paused_until = {};
  // Said again over a new session it changes nothing: what the node has reported stays.
  const bool is_new =
      seats
          .try_emplace(member.info.id, Seat{.assignment = assignment,
                                            .local_world_size = member.info.local_world_size,
                                            .store_port = member.info.store_port})
          .second;
  if (!is_new) return;
  seat_of_rank[assignment.node_rank] = member.info.id;
  seated_ranks += member.info.local_world_size;
}

void State::ClearSeats() {
  seats.clear();
  seat_of_rank.clear();
  seated_ranks = 0;
  succeeded_seats = 0;
  has_success = false;
}

void State::EndReadopting(TimePoint now) {
  if (IsMissingSeats()) {
    if (MayMissingCome(now)) return;
    DrainRound(now, DrainCause::kLoss, MissingText());
    gone[NodeId{}] = drain_reason;  // nobody knows their ids
    return;
  }
  phase = Phase::kSealed;
  refused.clear();
  needs_telling = true;
  // Those that came before the first node of the round wait from now on beside it.
  for (auto& [id, member] : members.members()) {
    if (member.standing == Standing::kWaiting && !member.waits_since) member.waits_since = now;
  }
  growth = {.review_at = now};
  CloseIfAllSucceeded(now);
}

// With etcd the coordinator that sealed the round is not this one.
bool State::IsLeaderMissing() const {
  const std::string& leader = seats.begin()->second.assignment.coordinator_node;
  return !leader.empty() && std::ranges::none_of(seats, [&](const auto& entry) {
    const Member* member = members.Find(entry.first);
    // As AssignRanks has named it.
    return member != nullptr &&
           (leader == NodeName(member->info) ||
            leader == NumberedName(member->info, entry.second.assignment.node_rank));
  });
}

// An agent goes with its coordinator's process. One that lives all the same has 2 s from when the
// last of the others came back.
bool State::IsOnlyGoneLeaderMissing() const {
  return election.has_value() && epoch == election->gone_leader && IsMissingSeats() &&
         static_cast<int>(seats.size()) == seats.begin()->second.assignment.node_count - 1 &&
         IsLeaderMissing();
}

std::string State::MissingText() const {
  const Assignment& any = seats.begin()->second.assignment;
  const int missing = any.node_count - static_cast<int>(seats.size());
  // The other nodes' names nobody knows.
  const bool is_leader_missing = IsLeaderMissing();
  std::set<int> held;
  for (const auto& [id, seat] : seats) held.insert(seat.assignment.node_rank);
  // Those that came back know their own places.
  std::string places;
  int named = 0;
  for (int rank = 0; named < std::min(missing, static_cast<int>(kNamedNodes)); ++rank) {
    if (held.contains(rank)) continue;
    absl::StrAppend(&places, named++ == 0 ? "" : ", ", rank);
  }
  if (missing > named) absl::StrAppend(&places, " and ", missing - named, " more");
  if (is_leader_missing) {
    absl::StrAppend(&places, missing == 1 ? " (node " : " (with node ", any.coordinator_node,
                    ", which had the coordinator)");
  }
  return absl::StrCat(missing, " of the ", any.node_count, " nodes of round ", round.value,
                      ", node ", missing == 1 ? "rank " : "ranks ", places, ", ",
                      missing == 1 ? "has" : "have", " not come back to the ",
                      any.coordinator_node.empty() ? "restarted" : "new", " coordinator");
}

}  // namespace ddprun::rendezvous
