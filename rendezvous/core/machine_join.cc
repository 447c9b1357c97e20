// How nodes come into the job and go out of it.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

using State = MachineInspector::State;

namespace {

// Far above any node there is; keeps world sizes far from overflow.
constexpr int kMaxLocalWorldSize = 4096;

Refuse MakeRefusal(const NodeJoined& event, Refusal kind, std::string message) {
  return {.session = event.stamp.session, .kind = kind, .message = std::move(message)};
}

}  // namespace

void State::OnJoined(TimePoint now, const NodeJoined& event) {
  const SessionId session = event.stamp.session;
  const Member* known = members.Find(event.node.id);
  if (known != nullptr && session < known->session) {
    // A delayed join of a session that the node has itself replaced.
    ++ignored_messages;
    actions.push_back(CloseSession{session});
    return;
  }
  if (phase == Phase::kClosed) {
    AnswerAfterEnd(now, event);
    return;
  }
  if (std::optional<Refuse> refusal = CheckAdmission(event)) {
    actions.push_back(*std::move(refusal));
    return;
  }
  if (!has_policy) AdoptPolicy(event.policy);
  if (policy.is_static) ReplaceLostHolderOfRank(now, event.node);
  if (known != nullptr && known->is_connected && known->session != session) {
    actions.push_back(CloseSession{known->session});
  }
  Member& member = members.Admit(event.node, session, now);
  member.source_addr = event.source_addr;
  member.accepted_addr = event.accepted_addr;
  if (event.stamp.epoch > epoch) {
    epoch_floor = std::max(epoch_floor, event.stamp.epoch);
    round_floor = std::max(round_floor, event.stamp.round);
  }
  gone.erase(event.node.id);
  needs_quorum = true;
  has_newcomer = true;
  if (event.held) {
    AdoptRunning(now, event.stamp, member);
  } else {
    AdoptWaiting(now, event.stamp, member);
  }
}

std::optional<Refuse> State::CheckAdmission(const NodeJoined& event) const {
  const NodeInfo& node = event.node;
  const Stamp& stamp = event.stamp;
  const Member* holder = members.FindBySession(stamp.session);
  if (holder != nullptr && holder->info.id != node.id) {
    return MakeRefusal(event, Refusal::kFinal,
                       absl::StrCat("this session already serves node ", NodeName(holder->info)));
  }
  if (has_policy &&
      (event.policy.min_nodes != policy.min_nodes || event.policy.max_nodes != policy.max_nodes)) {
    return MakeRefusal(
        event, Refusal::kFinal,
        absl::StrCat("node ", NodeName(node), " was started with ",
                     NnodesText(event.policy.min_nodes, event.policy.max_nodes),
                     ", the coordinator with ", NnodesText(policy.min_nodes, policy.max_nodes),
                     ": all nodes need the same --nnodes"));
  }
  if (node.local_world_size < 1 || node.local_world_size > kMaxLocalWorldSize) {
    return MakeRefusal(event, Refusal::kFinal,
                       absl::StrCat("node ", NodeName(node), " offers ", node.local_world_size,
                                    " workers: 1 to ", kMaxLocalWorldSize, " are possible"));
  }
  const bool is_from_future = stamp.epoch == epoch && stamp.round > round;
  const bool leaves_no_successor =
      stamp.epoch.value == std::numeric_limits<uint64_t>::max() ||
      (stamp.epoch > epoch && stamp.round.value == std::numeric_limits<uint64_t>::max());
  if (is_from_future || leaves_no_successor || (event.held && stamp.round == Round{})) {
    return MakeRefusal(
        event, Refusal::kFinal,
        absl::StrCat("node ", NodeName(node), " claims round ", stamp.round.value, " of epoch ",
                     stamp.epoch.value, ", which no coordinator of this job gave out"));
  }
  if (policy.is_static) return CheckStaticRank(event);
  return std::nullopt;
}

std::optional<Refuse> State::CheckStaticRank(const NodeJoined& event) const {
  const NodeInfo& node = event.node;
  if (node.node_rank < 0 || node.node_rank >= policy.max_nodes) {
    return MakeRefusal(event, Refusal::kFinal,
                       absl::StrCat("--node_rank=", node.node_rank, " of node ", NodeName(node),
                                    " is not in 0..", policy.max_nodes - 1, " (",
                                    NnodesText(policy.min_nodes, policy.max_nodes), ")"));
  }
  for (const auto& [id, member] : members.members()) {
    if (id == node.id || member.info.node_rank != node.node_rank) continue;
    if (!member.is_connected && member.info.host == node.host) continue;
    return MakeRefusal(event, Refusal::kFinal,
                       absl::StrCat("--node_rank=", node.node_rank, " of node ", NodeName(node),
                                    " is held by node ", NodeName(member.info),
                                    ": each needs one of its own in 0..", policy.max_nodes - 1,
                                    " (", NnodesText(policy.min_nodes, policy.max_nodes), ")"));
  }
  return std::nullopt;
}

void State::ReplaceLostHolderOfRank(TimePoint now, const NodeInfo& node) {
  for (const auto& [id, member] : members.members()) {
    if (id == node.id || member.info.node_rank != node.node_rank) continue;
    // CheckStaticRank let only a suspect of the same host pass: a new agent with its rank on its
    // host is the proof that it is gone.
    const NodeId lost = id;
    RemoveNode(now, lost, absl::StrCat("node ", NodeName(node), " was started anew"));
    gone.erase(lost);  // its successor is here
    return;
  }
}

void State::AdoptRunning(TimePoint now, const Stamp& stamp, Member& member) {
  const bool has_seat = seats.contains(member.info.id);
  if (phase == Phase::kSealed && has_seat && stamp.epoch == epoch && stamp.round == round) {
    member.standing = Standing::kRunning;
    return;
  }
  member.standing = Standing::kStopping;
  const bool is_draining = phase == Phase::kDraining && stamp.epoch == epoch;
  actions.push_back(Drain{.session = member.session,
                          .epoch = stamp.epoch,
                          .round = stamp.round,
                          .reason = is_draining
                                        ? drain_reason
                                        : absl::StrCat("round ", stamp.round.value, " is over")});
  const bool is_forming = phase == Phase::kOpen || phase == Phase::kLastCall;
  if (stamp.epoch > epoch && is_forming) {
    // The coordinator before us knew more than we do: others of its round may be on their way.
    forming.is_first = false;
    hold_until = started_at + policy.evict_after;
  }
  if (phase == Phase::kSealed && has_seat) {
    DrainRound(now, DrainCause::kLoss,
               absl::StrCat("node ", NodeName(member.info), " runs an earlier round"));
  }
}

void State::AdoptWaiting(TimePoint now, const Stamp& stamp, Member& member) {
  const auto seat = seats.find(member.info.id);
  if (phase != Phase::kSealed || seat == seats.end()) {
    member.standing = Standing::kWaiting;
    needs_telling = true;
    const bool has_room = static_cast<int>(seats.size()) < policy.max_nodes;
    if (phase == Phase::kSealed && has_room && !is_finishing) {
      DrainRound(now, DrainCause::kArrival,
                 absl::StrCat("node ", NodeName(member.info), " joined"));
    }
    return;
  }
  const bool has_adopted = stamp.epoch == epoch && stamp.round == round;
  if (seat->second.has_succeeded && has_adopted) {
    member.standing = Standing::kRunning;  // Nothing lives there, and nothing needs to.
    return;
  }
  const bool is_master = seat->second.assignment.node_rank == 0;
  const bool store_moved = is_master && member.info.store_port != seat->second.store_port;
  if (!has_adopted && !store_moved) {
    // The assignment was lost with the old session.
    member.standing = Standing::kRunning;
    actions.push_back(Assign{.session = member.session, .assignment = seat->second.assignment});
    return;
  }
  member.standing = Standing::kWaiting;
  needs_telling = true;
  DrainRound(now, DrainCause::kLoss,
             absl::StrCat("node ", NodeName(member.info), " lost its workers"));
}

void State::OnLeft(TimePoint now, const NodeLeft& event) {
  const Member* member = members.FindBySession(event.stamp.session);
  if (member == nullptr) {
    ++ignored_messages;
    return;
  }
  const NodeId id = member->info.id;
  RemoveNode(now, id,
             absl::StrCat("node ", NodeName(member->info), " left",
                          event.reason.empty() ? "" : absl::StrCat(": ", event.reason)));
}

void State::OnBroken(TimePoint now, const SessionBroken& event) {
  // Unknown: we closed it ourselves, or the node has left.
  if (members.BreakSession(event.session, now) == nullptr) return;
  needs_quorum = true;
}

void State::EvictSilent(TimePoint now) {
  for (const NodeId& id : members.Expired(now)) {
    const Member& member = *members.Find(id);
    // A session that still looks alive is cut: were the node to hear us, it must join anew.
    if (member.is_connected) actions.push_back(CloseSession{member.session});
    RemoveNode(now, id,
               absl::StrCat("node ", NodeName(member.info), " is lost: silent for ",
                            DurationText(policy.evict_after)));
  }
}

void State::RemoveNode(TimePoint now, const NodeId& id, const std::string& reason) {
  const Member& member = *members.Find(id);
  const auto seat = seats.find(id);
  const bool has_unfinished_seat = seat != seats.end() && !seat->second.has_succeeded;
  if (member.previous_round != Round{} && member.previous_round == round) gone[id] = reason;
  if (phase == Phase::kDraining && has_unfinished_seat && first_failure.has_value() &&
      MayBeConsequence(id, member)) {
    // What failed elsewhere failed because this node was gone: the round is not charged.
    first_failure.reset();
    drain_cause = DrainCause::kLoss;
    drain_reason = reason;
  }
  members.Remove(id);
  unacknowledged.erase(id);
  needs_quorum = true;
  if (phase == Phase::kSealed && has_unfinished_seat) {
    DrainRound(now, DrainCause::kLoss, reason);
  }
}

}  // namespace ddprun::rendezvous
