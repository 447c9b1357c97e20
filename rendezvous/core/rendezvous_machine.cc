#include "rendezvous/core/rendezvous_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

RendezvousMachine::RendezvousMachine(std::optional<Policy> policy, Beginning beginning,
                                     TimePoint now, std::optional<Election> election)
    : state_(std::make_unique<State>(std::move(policy), std::move(beginning), now, election)) {}

RendezvousMachine::~RendezvousMachine() = default;

std::vector<Action> RendezvousMachine::Step(TimePoint now, const Event& event) {
  DDP_CHECK(now >= state_->last_step);
  state_->ForgiveStall(now);
  state_->last_step = now;
  std::visit([this, now](const auto& any) { state_->On(now, any); }, event);
  state_->Advance(now);
  state_->TellWaiters(now);
  return std::exchange(state_->actions, {});
}

void RendezvousMachine::NoteLag(TimePoint now, Duration lag) { state_->NoteLag(now, lag); }

std::optional<TimePoint> RendezvousMachine::NextDeadline() const { return state_->NextDeadline(); }

Stamp RendezvousMachine::current() const {
  return {
      .session = {}, .epoch = state_->epoch, .round = state_->round, .instance = state_->instance};
}

const Policy* RendezvousMachine::policy() const {
  return state_->has_policy ? &state_->policy : nullptr;
}

Duration RendezvousMachine::beat_interval() const { return state_->members.beat_interval(); }

const std::optional<Verdict>& RendezvousMachine::verdict() const { return state_->verdict; }

bool RendezvousMachine::is_finished() const { return state_->is_finished; }

const std::string& RendezvousMachine::resignation() const { return state_->resignation; }

bool RendezvousMachine::has_nodes() const {
  return !state_->members.members().empty() || !state_->seats.empty();
}

bool RendezvousMachine::is_deserted() const {
  return !has_nodes() && state_->round != Round{} &&
         state_->left_of_round >= state_->round_size.nodes;
}

JobFacts RendezvousMachine::Facts(TimePoint now) const { return state_->Facts(now); }

std::vector<RendezvousMachine::Place> RendezvousMachine::Places() const {
  std::vector<Place> places;
  for (const auto& [id, member] : state_->members.members()) {
    places.push_back({id, NodeName(member.info), std::nullopt});
    if (member.is_connected) places.back().session = member.session;
  }
  return places;
}

State::State(std::optional<Policy> policy_in, Beginning beginning, TimePoint now,
             std::optional<Election> election_in)
    : election(election_in),
      instance(beginning.instance),
      own_epoch(beginning.epoch),
      is_instance_settled(beginning.is_remembered),
      is_instance_inherited(beginning.is_remembered),
      epoch(beginning.epoch),
      members(policy.evict_after),
      restart_count(beginning.restart_count),
      spent(beginning.spent),
      record_limit(beginning.record_limit),
      last_step(now),
      owes_hold(beginning.is_remembered) {
  DDP_CHECK(instance.is_known());
  bad_nodes.Restore(beginning.bad_nodes, now);
  policy.run_id = std::move(beginning.run_id);
  if (policy_in.has_value()) AdoptPolicy(*std::move(policy_in));
  forming.opened_at = now;
  if (!beginning.verdict.has_value()) return;
  phase = Phase::kClosed;
  has_begun_closed = true;
  verdict = std::move(beginning.verdict);
  is_told = true;
  end_at = now + policy.verdict_ack_timeout;
}

void State::AdoptPolicy(Policy given) {
  DDP_CHECK(1 <= given.min_nodes && given.min_nodes <= given.max_nodes);
  policy = std::move(given);
  has_policy = true;
  members.SetEvictAfter(policy.evict_after);
}

void State::ForgiveStall(TimePoint now) {
  // Without members no step was asked for, so a gap says nothing.
  if (members.members().empty() || is_finished || now - last_step <= kStall) return;
  const Duration lost = now - last_step - kTick;
  stall_began = last_step;
  stall_ended = now;
  // Everybody's silence starts afresh: what they said meanwhile is still in our queue.
  members.GrantAmnesty(now, members.return_time(), lost);
  for (TimePoint* at : {&forming.opened_at, &hold_until, &restart_hold_until, &backoff_until,
                        &readopt_until, &leader_back_by, &end_at}) {
    *at += lost;
  }
  for (std::optional<TimePoint>* at : {&forming.minimum_reached_at, &below_minimum_since,
                                       &quorum.retry_at, &quorum.patience_ends}) {
    if (at->has_value()) **at += lost;
  }
  if (phase == Phase::kDraining && name_cause_at > last_step) name_cause_at += lost;
  health_awaited_until += lost;
  needs_review = true;
  bad_nodes.Postpone(lost);
  needs_telling = true;
}

void State::NoteLag(TimePoint now, Duration lag) {
  if (lag < std::min(kLag, policy.evict_after / 4) || now < next_lag) return;
  next_lag = now + std::min(kLag, policy.evict_after / 4);
  members.GrantAmnesty(now, members.return_time());
}

Member* State::Hear(TimePoint now, const Stamp& stamp, bool is_stuck) {
  Member* member = members.FindBySession(stamp.session);
  if (member == nullptr) {
    ++ignored_messages;
  } else {
    members.Hear(*member, now, is_stuck);
  }
  return member;
}

void State::Advance(TimePoint now) {
  // Nodes of a round that is being taken over have the time that all others have.
  if (phase == Phase::kReadopting || IsMissingSeats() || now < readopt_until) {
    const TimePoint until = std::min(
        members.amnesty_until(), readopt_since + members.uncounted() + members.longest_silence());
    readopt_until = std::max(readopt_until, until);
    leader_back_by = std::max(leader_back_by, until);
  }
  if (election.has_value() && resignation.empty() && phase != Phase::kClosed &&
      members.HearsNobodyElsewhere(now)) {
    resignation =
        absl::StrCat("its coordinator has heard none of the other nodes for ",
                     DurationText(members.lonely_after()), ", and leaves its place to another");
  }
  // Who does not hear them may be cut off, and they are not.
  if (!resignation.empty()) return;
  EvictSilent(now);
  if (phase == Phase::kReadopting) EndReadopting(now);
  if (phase == Phase::kSealed) ReviewArrivals(now);
  if (phase == Phase::kDraining) ReviewDrain(now);
  if (phase == Phase::kOpen) ReviewQuorum(now);
  if (phase == Phase::kClosed) FinishWhenDone(now);
}

std::optional<TimePoint> State::NextDeadline() const {
  if (is_finished) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&](std::optional<TimePoint> at) {
    if (at.has_value() && *at > last_step) next = next.has_value() ? std::min(*next, *at) : *at;
  };
  if (empty_since.has_value() && phase != Phase::kClosed) {
    consider(*empty_since + policy.orphan_timeout);
  }
  if (!members.members().empty()) {
    consider(last_step + kTick);
    consider(members.NextExpiry());
  }
  if (phase == Phase::kOpen) consider(quorum.retry_at);
  if ((phase == Phase::kOpen || phase == Phase::kDraining) && needs_review) consider(next_review);
  consider(JoinDeadline());
  if (phase == Phase::kDraining) consider(review_by);
  if (phase == Phase::kReadopting && IsMissingSeats()) {
    consider(readopt_until);
    consider(leader_back_by);
  }
  if (phase == Phase::kClosed) consider(end_at);
  if (phase == Phase::kSealed && growth.review_at != TimePoint::max()) consider(growth.review_at);
  if (needs_telling) consider(next_telling);
  return next;
}

}  // namespace ddprun::rendezvous
