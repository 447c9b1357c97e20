// How nodes come into the job and go out of it.
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

void State::On(TimePoint now, const NodeJoined& event) {
  const SessionId session = event.stamp.session;
  const Member* known = members.Find(event.node.id);
  if (known != nullptr && session < known->session) {
    // A delayed join of a session that the node has itself replaced.
    ++ignored_messages;
    actions.push_back(CloseSession{session});
    return;
  }
  if (std::string other = FindOtherRelease(event.node); !other.empty()) {
    // Whatever it wants, it would not understand the answer.
    if (phase == Phase::kOpen) NoteRefusal(event.node, other);
    const Refusal kind = event.held ? Refusal::kOtherJob : Refusal::kFinal;
    actions.push_back(Refuse{.session = session, .kind = kind, .message = std::move(other)});
    return;
  }
  if (phase == Phase::kClosed) {
    AnswerAfterEnd(now, event);
    return;
  }
  if (std::optional<Refuse> refusal = CheckAdmission(now, event)) {
    const bool is_by_options = refusal->message == FindDifference(event) ||
                               refusal->message == FindTakenRank(event) ||
                               refusal->message == FindOtherCluster(event.node);
    // Those that wait for it are to know.
    if (phase == Phase::kOpen && is_by_options) NoteRefusal(event.node, refusal->message);
    // Else nobody would be heard, and nobody lost, if all holders are dead.
    if (refusal->kind == Refusal::kRankHeld) members.HearOfStranger(now);
    actions.push_back(*std::move(refusal));
    return;
  }
  if (!has_policy) AdoptPolicy(event.policy);
  if (policy.run_id.empty()) policy.run_id = event.policy.run_id;
  if (TurnAway(now, event)) return;
  if (const Member* holder = OtherOfRank(event.node)) {
    // FindTakenRank let only a suspect of the same host pass: a new agent with its rank on its
    // host is the proof that it is gone.
    const NodeId lost = holder->info.id;
    RemoveNode(now, lost, absl::StrCat("node ", members.NameOf(*holder), " was started again"));
    gone.erase(lost);  // its successor is here
  }
  NoteNodeOfStep(event.node);
  Member& member = Admit(now, event);
  const bool is_unknown_round = LearnFromStamp(now, event);
  empty_since.reset();
  std::erase_if(refused,
                [&](const RefusedNode& other) { return other.host == NodeName(event.node); });
  gone.erase(event.node.id);
  if (!stop_reason.empty()) {
    actions.push_back(TellToStop{.session = event.stamp.session, .reason = stop_reason});
  }
  NoteBack(member);
  needs_review = true;
  has_newcomer = true;
  if (event.held) {
    AdoptRunning(now, event, is_unknown_round, member);
  } else {
    AdoptWaiting(now, event.stamp, member);
  }
}

Member& State::Admit(TimePoint now, const NodeJoined& event) {
  const Member* known = members.Find(event.node.id);
  if (known != nullptr && known->is_connected && known->session != event.stamp.session) {
    actions.push_back(CloseSession{known->session});
  }
  return members.Admit(event, now);
}

bool State::LearnRestarts(const NodeJoined& event) {
  const auto before = std::pair(restart_count, spent.given_back);
  // Also of a round that is over: the coordinator that charged it may have died with its record.
  if (event.policy.limits.budget_period > Duration{0}) {
    const int given_back = event.max_restarts - event.policy.max_restarts;
    spent.given_back = std::max(spent.given_back, std::min(given_back, event.restart_count));
  }
  const int64_t most = int64_t{event.policy.max_restarts} + spent.given_back;
  restart_count =
      std::max(restart_count, static_cast<int>(std::min(int64_t{event.restart_count}, most)));
  return std::pair(restart_count, spent.given_back) != before;
}

bool State::LearnFromStamp(TimePoint now, const NodeJoined& event) {
  const Stamp& stamp = event.stamp;
  bool is_record_due = false;
  if (!is_instance_settled && stamp.instance.is_known() && stamp.instance != instance &&
      stamp.epoch.value < kClaimLimit) {
    owes_hold = true;
    if (event.held) {
      instance = stamp.instance;
      is_instance_settled = is_instance_inherited = true;
      is_record_due = true;
    }
  }
  if (stamp.instance == instance && (round == Round{} || is_readopted)) {
    is_record_due |= LearnRestarts(event);
  }
  if (is_record_due) WriteRecord();
  // The nodes of an earlier coordinator's round come back within the evict time. But where the
  // coordinator lives in a member such a round is over.
  if (event.node.is_endpoint_node) {
    owes_hold = false;
    restart_hold_until = {};
  }
  if (std::exchange(owes_hold, false) && round == Round{}) {
    restart_hold_until = now + members.return_time(policy.min_nodes);
  }
  if (stamp.instance != instance) return false;
  // Whoever lives comes back while the round is held: nobody else has to be given time to come.
  const bool is_held = restart_hold_until != TimePoint{};
  if (is_held && round == Round{} && stamp.round != Round{}) forming.is_first = false;
  const bool is_unknown = std::tie(stamp.epoch, stamp.round) > std::tie(own_epoch, round);
  // A round that is made up is not counted on from: the next one has a greater epoch anyway.
  if (stamp.round.value < kClaimLimit) round_floor = std::max(round_floor, stamp.round);
  if (is_unknown) own_epoch = Epoch{stamp.epoch.value + 1};
  if (round == Round{}) epoch = own_epoch;
  return is_unknown;
}

void State::AdoptRunning(TimePoint now, const NodeJoined& event, bool is_unknown_round,
                         Member& member) {
  const bool has_seat = seats.contains(member.info.id);
  if (phase == Phase::kSealed && has_seat && IsThisRound(event.stamp)) {
    member.standing = Standing::kRunning;
    if (growth.is_asked && stop_reason.empty()) TellToScaleUp(member);
    return;
  }
  if (!event.held->coordinator_is_member && MayReadopt(event.stamp)) {
    Readopt(now, event, member);
    return;
  }
  // It comes too late to go on, but not too late to say how its workers ended.
  if (phase == Phase::kDraining && !has_seat && IsThisRound(event.stamp) && IsMissingSeats() &&
      !event.held->coordinator_is_member) {
    TakeSeat(*event.held, member);
  }
  StopStale(now, event, member);
  if (IsThisRound(event.stamp)) gone.erase(NodeId{});  // of those that had not come back
  // A node that was not in the last round has no place to keep, and may tell a tale: whoever waits
  // for it does not wait longer than for a silent one, however often it comes with workers. While
  // the round runs all of its places are taken.
  const bool may_have_place =
      member.previous_rank >= 0 || (IsThisRound(event.stamp) && phase != Phase::kSealed);
  if (!may_have_place && !member.awaited_until) member.awaited_until = now + policy.evict_after;
  if (is_unknown_round && round == Round{} && forming.is_first) {
    // Or the coordinator before us knew more than we do: others of its round may be on their way.
    forming.is_first = false;
    hold_until = now + members.return_time(event.held->node_count);
  }
  if ((phase == Phase::kSealed || phase == Phase::kReadopting) && has_seat) {
    DrainRound(now, DrainCause::kLoss,
               absl::StrCat("node ", members.NameOf(member), " runs an earlier round"));
  }
}

void State::StopStale(TimePoint now, const NodeJoined& event, Member& member) {
  const Stamp& stamp = event.stamp;
  member.standing = Standing::kStopping;
  const bool is_draining = phase == Phase::kDraining && IsThisRound(stamp);
  // What it has to say of the round follows at once.
  if (is_draining && drain_cause == DrainCause::kFailure) {
    name_cause_at = std::max(
        name_cause_at, std::min(now + (IsCauseWanted() ? kPeersWord : policy.first_cause_window),
                                drained_at + policy.evict_after));
  }
  actions.push_back(Drain{
      .session = member.session,
      .epoch = stamp.epoch,
      .round = stamp.round,
      .reason = is_draining ? drain_reason : absl::StrCat("round ", stamp.round.value, " is over"),
      .is_cause_wanted = is_draining && IsCauseWanted()});
}

void State::AdoptWaiting(TimePoint now, const Stamp& stamp, Member& member) {
  const auto seat = seats.find(member.info.id);
  const bool has_adopted = IsThisRound(stamp);
  const bool has_running_round = phase == Phase::kSealed || phase == Phase::kReadopting;
  const bool has_seat = has_running_round && seat != seats.end();
  if (has_seat && has_adopted && seat->second.succeeded_at.has_value()) {
    member.standing = Standing::kRunning;  // Nothing lives there, and nothing needs to.
    return;
  }
  if (has_seat && !has_adopted && !is_readopted) {
    const bool is_master = seat->second.assignment.node_rank == 0;
    if (!is_master || member.info.store_port == seat->second.store_port) {
      // The assignment was lost with the old session.
      member.standing = Standing::kRunning;
      actions.push_back(Assign{.session = member.session, .assignment = seat->second.assignment});
      if (growth.is_asked && stop_reason.empty()) TellToScaleUp(member);
      return;
    }
  }
  member.standing = Standing::kWaiting;
  member.awaited_until.reset();
  needs_telling = true;
  if (has_seat || (phase == Phase::kReadopting && has_adopted)) {
    DrainRound(now, DrainCause::kLoss,
               absl::StrCat("node ", members.NameOf(member), " lost its workers"));
  } else {
    NoteArrival(now, member);
  }
}

void State::On(TimePoint now, const NodeLeft& event) {
  const Member* member = Hear(now, event.stamp);
  if (member == nullptr) return;
  if (member->previous_rank >= 0) ++left_of_round;
  // Where the job may go on its nodes are about to lose the coordinator, too.
  const bool goes_with_it = member->info.is_endpoint_node && policy.min_nodes < policy.max_nodes;
  const NodeId id = member->info.id;
  RemoveNode(now, id,
             absl::StrCat("node ", members.NameOf(*member), " left",
                          event.reason.empty() ? "" : absl::StrCat(": ", event.reason),
                          goes_with_it ? "; the coordinator, which is in it, ends soon" : ""),
             event.is_by_signal ? Departure::kPreempted : Departure::kLost);
}

void State::On(TimePoint now, const SessionBroken& event) {
  Member* member = members.BreakSession(event, now);
  if (member == nullptr) return;  // we closed it ourselves, or the node has left
  // What a stall left in our queue may be as old as the stall.
  if (now - stall_ended <= kBacklog) member->suspect_since = stall_began;
  needs_review = true;
}

std::string State::WhyLost(TimePoint now, const Member& member) const {
  if (now < member.last_heard + policy.evict_after) {
    return "its connection closed, and it has not come back";
  }
  const std::string time = DurationText(policy.evict_after);
  if (!member.is_stuck) return absl::StrCat("silent for ", time);
  return absl::StrCat("its ddprun does not work: its main thread has stood still for ", time);
}

void State::EvictSilent(TimePoint now) {
  for (const NodeId& id : members.Expired(now)) {
    const Member& member = *members.Find(id);
    // A session that still looks alive is cut: were the node to hear us, it must join anew.
    if (member.is_connected) actions.push_back(CloseSession{member.session});
    RemoveNode(now, id,
               absl::StrCat("node ", members.NameOf(member), " is lost: ", WhyLost(now, member)));
  }
  if (phase == Phase::kClosed) return;
  const auto is_too_long = [&](std::optional<TimePoint> since) {
    return since.has_value() && now >= *since + policy.orphan_timeout;
  };
  if (is_too_long(empty_since)) {
    GiveUp(absl::StrCat("gave up: all its nodes have left, and none came back within ",
                        DurationText(policy.orphan_timeout)));
    return;
  }
  if (!is_too_long(members.CutOffSince())) return;
  const size_t nodes = members.members().size();
  GiveUp(absl::StrCat("gave up: ",
                      nodes == 1 ? "its one node was not heard"
                                 : absl::StrCat("none of its ", nodes, " nodes was heard"),
                      " for ", DurationText(policy.orphan_timeout)));
}

void State::RemoveNode(TimePoint now, const NodeId& id, const std::string& reason,
                       Departure departure) {
  const Member& member = *members.Find(id);
  const auto seat = seats.find(id);
  const bool has_unfinished_seat = seat != seats.end() && !seat->second.succeeded_at.has_value();
  if (member.previous_rank >= 0) gone[id] = reason;
  // It may not come back, as one that has left.
  if (departure == Departure::kBad && member.previous_rank >= 0) ++left_of_round;
  const bool is_cause =
      departure == Departure::kBad ? !IsStartedOnce() : MayBeConsequence(now, id, member);
  if (phase == Phase::kDraining && has_unfinished_seat && first_failure.has_value() && is_cause) {
    // What failed elsewhere failed because this node was gone or bad: the round is not charged.
    ForgetFailures();
    drain_cause = DrainCause::kLoss;
    is_preemption = departure == Departure::kPreempted;
    drain_reason = reason;
  }
  if (member.came_at && member.previous_rank >= 0) {
    arrivals.NoteGone(NodeName(member.info), *member.came_at, now);
  }
  members.Remove(id);
  ReviewArrivalsSoon(now);
  if (members.members().empty()) {
    empty_since = now;
    if (phase != Phase::kClosed) {
      cluster = {};
      step_nodes.clear();
    }
  }
  unacknowledged.erase(id);
  needs_review = true;
  const bool has_running_round = phase == Phase::kSealed || phase == Phase::kReadopting;
  if (has_running_round && has_unfinished_seat) {
    DrainRound(now, DrainCause::kLoss, reason);
    is_preemption = departure == Departure::kPreempted;
  }
}

}  // namespace ddprun::rendezvous
