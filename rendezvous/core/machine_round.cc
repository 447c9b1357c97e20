// How a round is formed, sealed and drained.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

namespace {

// Whether `a` is a better answer than `b` to what ended the round, but for aborts: Cause().
bool IsCloserToCause(const DatedFailure& a, const DatedFailure& b) {
  if (a.is_consequence() != b.is_consequence()) return b.is_consequence();
  return a.date < b.date;
}

}  // namespace

// Where thousands join at once, each of them would cost a review: what they change together is
// looked at together, 100 ms later at most.
Duration State::ReviewPause(size_t nodes) {
  constexpr size_t kFew = 250;
  constexpr Duration kOfEach = std::chrono::microseconds(10);
  constexpr Duration kLongest = std::chrono::milliseconds(100);
  if (nodes <= kFew) return Duration{0};
  return std::min<Duration>(static_cast<int64_t>(nodes - kFew) * kOfEach, kLongest);
}

// What a node dates by an age, on our own clock.
TimePoint State::DateOf(TimePoint now, Duration age) const {
  return now - std::clamp(age, Duration::zero(), Duration(now - round_began) + kDateSlack);
}

void State::ReviewQuorum(TimePoint now) {
  const bool time_matters = (quorum.retry_at.has_value() && now >= *quorum.retry_at) ||
                            (JoinDeadline().has_value() && now >= *JoinDeadline());
  if (!time_matters && (!needs_review || now < next_review)) return;
  ++reviews;
  needs_review = false;
  next_review = now + ReviewPause(members.members().size());
  TimePoint held_until = std::max(hold_until, restart_hold_until);
  if (AwaitsHolders()) held_until = std::max(held_until, readopt_until);
  if (held_until > now) {
    quorum = {.reason = "the coordinator was restarted, waiting for nodes of the last round",
              .retry_at = held_until,
              .is_countdown = true};
    needs_telling = true;
    return;
  }
  if (backoff_until > now) {
    quorum = {
        .reason = absl::StrCat("waiting before restart ", restart_count, " (--restart-backoff)"),
        .retry_at = backoff_until,
        .is_countdown = true};
    needs_telling = true;
    return;
  }
  const Candidates candidates = CountCandidates(members, now, NodesNeeded(policy));
  const bool has_minimum = candidates.ready >= NodesNeeded(policy);
  const auto note_since = [now](std::optional<TimePoint>& since, bool holds) {
    since = holds ? std::optional(since.value_or(now)) : std::nullopt;
  };
  note_since(forming.minimum_reached_at, has_minimum);
  // Where nobody waits there is nobody to give up on.
  note_since(below_minimum_since, !has_minimum && candidates.ready > 0);
  quorum = DecideQuorum(now, forming, candidates, policy);
  if (quorum.ready) {
    SealRound(now, candidates.takes_paused);
    return;
  }
  if (candidates.recount_at.has_value()) {
    quorum.retry_at = std::min(quorum.retry_at.value_or(TimePoint::max()), *candidates.recount_at);
  }
  for (const std::string& text : {GoneText(), RefusedText()}) {
    if (!text.empty()) absl::StrAppend(&quorum.reason, " (", text, ")");
  }
  needs_telling = true;
  const std::optional<TimePoint> give_up_at = JoinDeadline();
  if (give_up_at.has_value() && now >= *give_up_at) {
    GiveUp(absl::StrCat("gave up after ", DurationText(policy.join_timeout), ": ", quorum.reason));
  }
}

void State::SealRound(TimePoint now, bool takes_paused) {
  Members ready;
  for (const auto& [id, member] : members.members()) {
    if (IsReady(member, now, takes_paused)) ready.push_back(&member);
  }
  const Members order = OrderByRank(SelectMembers(ready, policy.max_nodes), policy.is_static);
  std::vector<Assignment> assignments = AssignRanks(order, policy);
  const std::string shrink_text = ShrinkText(assignments[0]);
  round = Round{++round_floor.value};
  is_readopted = false;
  round_began = running_since = now;
  left_of_round = 0;
  gone.clear();
  refused.clear();
  phase = Phase::kSealed;
  is_restart_due = false;
  // A coordinator after us has to know the job by what its nodes have heard.
  const bool is_news = !is_instance_settled || epoch != own_epoch;
  is_instance_settled = true;
  epoch = own_epoch;
  if (is_news) WriteRecord();
  for (size_t node_rank = 0; node_rank < order.size(); ++node_rank) {
    Assignment& assignment = assignments[node_rank];
    assignment.instance = instance;
    assignment.epoch = epoch;
    assignment.round = round;
    assignment.restart_count = restart_count;
    assignment.max_restarts = MaxRestarts();
    assignment.restart_reason = drain_reason;
    Member& member = *members.Find(order[node_rank]->info.id);
    if (member.previous_rank >= 0) assignment.note = shrink_text;
    TakeSeat(assignment, member);
    actions.push_back(Assign{.session = member.session, .assignment = std::move(assignment)});
  }
  ForgetOldRanks();
  for (auto& [id, member] : members.members()) {
    // It was waited for in vain.
    if (member.standing == Standing::kStopping) member.awaited_until = now;
    if (member.standing == Standing::kWaiting) member.waits_since = now;
  }
  growth = {.review_at = now};
  needs_telling = true;  // of those that found no place
}

void State::ForgetOldRanks() {
  for (auto& [id, member] : members.members()) {
    if (!seats.contains(id)) member.previous_rank = -1;
  }
}

void State::DrainRound(TimePoint now, DrainCause cause, const std::string& reason) {
  DDP_CHECK(phase == Phase::kSealed || phase == Phase::kReadopting);
  phase = Phase::kDraining;
  drained_at = now;
  drain_cause = cause;
  is_preemption = false;
  drain_reason = reason;
  // After a loss, what fails fails because of it: there is no first cause to wait for.
  name_cause_at = cause == DrainCause::kLoss ? now
                  : IsCauseWanted()          ? now + kPeersWord
                                             : now + policy.first_cause_window;
  health_awaited_until = now + LongestCheck();
  needs_review = true;
  next_review = now;
  needs_telling = true;
  if (cause == DrainCause::kArrival) arrivals.NoteRestart(now);
  StopRunning(reason);
}

void State::StopRunning(const std::string& reason) {
  for (const auto& [id, seat] : seats) {
    Member* member = members.Find(id);
    if (member == nullptr || member->standing != Standing::kRunning) continue;
    member->standing = Standing::kStopping;
    if (!member->is_connected) continue;
    actions.push_back(Drain{.session = member->session,
                            .epoch = epoch,
                            .round = round,
                            .reason = reason,
                            .is_cause_wanted = IsCauseWanted()});
  }
}

// All reports count, in whatever order they have come.
const DatedFailure& State::Cause() const {
  return own_cause.has_value() && own_cause->explains(*first_failure) ? *own_cause : *first_failure;
}

void State::ForgetFailures() {
  first_failure.reset();
  own_cause.reset();
}

bool State::IsCauseWanted() const {
  return phase == Phase::kDraining && drain_cause == DrainCause::kFailure &&
         first_failure.has_value() && MayFollow(first_failure->report);
}

bool State::HasRoom() const {
  return phase == Phase::kSealed && static_cast<int>(seats.size()) < policy.max_nodes &&
         !IsFinishing();
}

Member* State::CurrentMember(TimePoint now, const Stamp& stamp) {
  Member* member = Hear(now, stamp);
  if (member == nullptr) return nullptr;
  const bool is_over = phase == Phase::kClosed || !IsThisRound(stamp);
  if (!is_over && seats.contains(member->info.id)) return member;
  ++ignored_messages;
  return nullptr;
}

bool State::IsOwnRank(const Member& member, int rank) {
  const Seat& seat = seats.at(member.info.id);
  const int first_rank = seat.assignment.first_rank;
  if (first_rank <= rank && rank < first_rank + seat.local_world_size) return true;
  ++ignored_messages;
  return false;
}

void State::On(TimePoint now, const WorkersFailed& event) {
  const Member* member = CurrentMember(now, event.stamp);
  // That a rank hangs is said by the node that has looked at all of them.
  if (member == nullptr || !(event.report.is_hang || IsOwnRank(*member, event.report.rank))) return;
  const TimePoint date = DateOf(now, event.age);
  const DatedFailure failure{.reporter = member->info.id, .report = event.report, .date = date};
  if (phase == Phase::kDraining) {
    // After a loss, failures are consequences; after any drain, those that are not older than it.
    // But where only consequences of somebody's end are known, that one's own failure is the cause
    // even if its report took longer.
    const bool is_awaited = first_failure.has_value() && failure.explains(*first_failure);
    if (drain_cause == DrainCause::kLoss || (date > drained_at && !is_awaited)) return;
  }
  if (!first_failure.has_value() || IsCloserToCause(failure, *first_failure)) {
    first_failure = failure;
  }
  const bool has_own_cause = failure.report.has_own_cause && !failure.is_consequence();
  if (has_own_cause && (!own_cause.has_value() || failure.date < own_cause->date)) {
    own_cause = failure;
  }
  needs_review = true;
  if (phase != Phase::kDraining) {
    DrainRound(now, DrainCause::kFailure, FailureText(event.report));
  }
}

void State::On(TimePoint now, const FirstWorkerSucceeded& event) {
  const Member* member = CurrentMember(now, event.stamp);
  if (member == nullptr || !IsOwnRank(*member, event.rank)) return;
  Seat& seat = seats[member->info.id];
  if (!seat.first_success.has_value()) {
    seat.first_success = EarlyExit{.rank = event.rank, .date = DateOf(now, event.age)};
    has_success = needs_review = true;
  }
  if (phase != Phase::kDraining) needs_telling = true;
}

void State::On(TimePoint now, const WorkersSucceeded& event) {
  const Member* member = CurrentMember(now, event.stamp);
  // A node that finishes while the round drains starts again with the rest.
  if (member == nullptr || phase == Phase::kDraining) return;
  Seat& seat = seats[member->info.id];
  if (seat.succeeded_at.has_value()) return;
  seat.succeeded_at = now;
  seat.stop_read = event.stop_read;
  ++succeeded_seats;
  has_success = needs_telling = true;
  CloseIfAllSucceeded(now);
}

void State::CloseIfAllSucceeded(TimePoint now) {
  if (succeeded_seats < seats.size() || IsMissingSeats()) return;
  if (HasStoppedToScaleUp()) {
    // A coordinator before this one may have asked them.
    return DrainRound(now, DrainCause::kArrival,
                      growth.reason.empty() ? "nodes joined" : growth.reason);
  }
  const Assignment& any = seats.begin()->second.assignment;
  CloseJob(now, {.exit_code = 0,
                 .reason = absl::StrCat("all ", Counted(any.world_size, "rank"), " on ",
                                        Counted(any.node_count, "node"), " succeeded")});
}

bool State::MayBeConsequence(TimePoint now, const NodeId& id, const Member& member) const {
  // A node that breaks contact about when others fail has probably died, and they of it. So has one
  // that falls silent: the connections of a machine without power look alive. Its own failure
  // report is its own.
  if (!first_failure.has_value() || first_failure->reporter == id) return false;
  const TimePoint failed_at = first_failure->date + policy.first_cause_window;
  if (!member.is_connected) return member.suspect_since <= failed_at;
  return members.IsSilent(member, now) && member.heard_at <= failed_at;
}

bool State::IsCauseUncertain(TimePoint now) const {
  if (!first_failure.has_value()) return false;
  // A node that does not come back to a restarted coordinator may have died before the others.
  if (IsMissingSeats() && MayMissingCome(now)) return true;
  return std::ranges::any_of(seats, [&](const auto& entry) {
    const Member* member = members.Find(entry.first);
    return member != nullptr && !entry.second.succeeded_at.has_value() &&
           MayBeConsequence(now, entry.first, *member);
  });
}

bool State::MayMoreBeReported() const {
  return std::ranges::any_of(seats, [&](const auto& entry) {
    const Member* member = members.Find(entry.first);
    return member != nullptr && !entry.second.succeeded_at.has_value() &&
           member->standing != Standing::kWaiting;
  });
}

// All that is known follows from a peer that left, and the peer's node has not had its say.
bool State::AwaitsPeersWord(TimePoint now) const {
  if (!first_failure.has_value() || !first_failure->is_consequence()) return false;
  const int peer = *first_failure->report.left_peer;
  return std::ranges::any_of(seats, [&](const auto& entry) {
    const Seat& seat = entry.second;
    const int rank = peer - seat.assignment.first_rank;
    if (rank < 0 || rank >= seat.local_world_size || seat.succeeded_at.has_value()) return false;
    if (seat.first_success.has_value() && seat.first_success->rank == peer) return false;
    const Member* member = members.Find(entry.first);
    if (member == nullptr || member->standing == Standing::kWaiting) return false;
    // Its next beat shows that it lives; or none comes, and it is a suspect.
    const bool is_unheard = member->heard_at <= drained_at && !members.IsSilent(*member, now) &&
                            now < member->last_word + 3 * members.beat_interval();
    return now < drained_at + kPeersWord || is_unheard;
  });
}

void State::ReviewDrain(TimePoint now) {
  if (now < review_by && (!needs_review || now < next_review)) return;
  ++reviews;
  needs_review = false;
  next_review = now + ReviewPause(members.members().size());
  review_by = now + kTick;  // whether all are quiet is not dated
  for (const TimePoint at : {name_cause_at, drained_at + kPeersWord, health_awaited_until,
                             readopt_until, leader_back_by}) {
    if (at > now) review_by = std::min(review_by, at);
  }
  // A node that has joined again said before all it had to say of the round.
  if (now < name_cause_at && MayMoreBeReported()) return;
  if (AwaitsPeersWord(now) || AwaitsHealth(now)) return;
  // A suspect settles the question by coming back or by being evicted: at most evict_after.
  if (IsCauseUncertain(now)) return;
  if (first_failure.has_value() && IsMissingSeats()) {
    ForgetFailures();
    drain_cause = DrainCause::kLoss;
    is_preemption = false;
    drain_reason = gone[NodeId{}] = MissingText();  // nobody knows their names
  }
  if (first_failure.has_value() && !TakeOutForFailures(now)) return ChargeFailure(now);
  if (phase == Phase::kDraining) ChargeLoss(now);
}

void State::OpenRound(TimePoint now) {
  phase = Phase::kOpen;
  forming = {.is_first = false, .opened_at = now};
  below_minimum_since.reset();
  ForgetFailures();
  ClearSeats();
  needs_review = true;
  next_review = now;
}

}  // namespace ddprun::rendezvous
