// How a round is formed, sealed and drained.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

using State = MachineInspector::State;

namespace {

std::string FailureText(const FailureReport& report) {
  return absl::StrCat("rank ", report.rank, " on node ",
                      report.host.empty() ? report.node.value : report.host,
                      " failed: ", CauseText(report));
}

std::string BudgetText(const Policy& policy) {
  if (policy.max_restarts == 0) return "no restarts allowed";
  return absl::StrCat("no restarts left of ", policy.max_restarts);
}

}  // namespace

void State::ReviewQuorum(TimePoint now) {
  const bool time_matters = (quorum.retry_at.has_value() && now >= *quorum.retry_at) ||
                            (JoinDeadline().has_value() && now >= *JoinDeadline());
  if (!needs_quorum && !time_matters) return;
  needs_quorum = false;
  if (hold_until.has_value() && now < *hold_until) {
    quorum = {.ready = false,
              .reason = "the coordinator was restarted, waiting for nodes of the last round",
              .topic = "hold",
              .retry_at = hold_until};
    needs_telling = true;
    return;
  }
  hold_until.reset();
  const Candidates candidates = CountCandidates(members);
  const bool has_minimum = candidates.ready >= NodesNeeded(policy);
  if (!has_minimum) forming.minimum_reached_at.reset();
  if (has_minimum && !forming.minimum_reached_at.has_value()) forming.minimum_reached_at = now;
  // Nobody waits: there is nobody to give up on.
  if (has_minimum || candidates.ready == 0) below_minimum_since.reset();
  if (!has_minimum && candidates.ready > 0 && !below_minimum_since.has_value()) {
    below_minimum_since = now;
  }
  quorum = DecideQuorum(now, forming, candidates, policy);
  if (quorum.ready) {
    SealRound(now);
    return;
  }
  if (!gone.empty()) {
    const std::string why = absl::StrCat(" (", GoneText(), ")");
    quorum.reason += why;
    quorum.topic += why;
  }
  phase = has_minimum && forming.is_first ? Phase::kLastCall : Phase::kOpen;
  needs_telling = true;
  const std::optional<TimePoint> give_up_at = JoinDeadline();
  if (give_up_at.has_value() && now >= *give_up_at) {
    GiveUp(now,
           absl::StrCat("gave up after ", DurationText(policy.join_timeout), ": ", quorum.reason));
  }
}

void State::SealRound(TimePoint) {
  Members ready;
  for (const auto& [id, member] : members.members()) {
    if (member.standing == Standing::kWaiting && member.is_connected) ready.push_back(&member);
  }
  const Members order = OrderByRank(SelectMembers(ready, policy.max_nodes), policy.is_static);
  std::vector<Assignment> assignments = AssignRanks(order, policy);
  const RoundSize size = {.nodes = assignments[0].node_count, .ranks = assignments[0].world_size};
  const std::string shrink_text = ShrinkText(size);
  const Round last_round = std::exchange(round, Round{std::max(round, round_floor).value + 1});
  round_size = size;
  gone.clear();
  phase = Phase::kSealed;
  if (epoch_floor >= own_epoch) own_epoch = Epoch{epoch_floor.value + 1};
  epoch = own_epoch;
  epoch_floor = Epoch{};
  seats.clear();
  succeeded_seats = 0;
  is_finishing = false;
  first_failure.reset();
  for (size_t node_rank = 0; node_rank < order.size(); ++node_rank) {
    Assignment& assignment = assignments[node_rank];
    assignment.instance = instance;
    assignment.epoch = epoch;
    assignment.round = round;
    assignment.restart_count = restart_count;
    Member& member = *members.Find(order[node_rank]->info.id);
    if (!shrink_text.empty() && member.previous_round == last_round) {
      actions.push_back(
          TellWaiting{.session = member.session, .reason = shrink_text, .deadline = std::nullopt});
    }
    member.standing = Standing::kRunning;
    member.previous_rank = static_cast<int>(node_rank);
    member.previous_round = round;
    member.told_topic.clear();
    member.told_deadline.reset();
    seats[member.info.id] = {.assignment = assignment, .store_port = member.info.store_port};
    actions.push_back(Assign{.session = member.session, .assignment = std::move(assignment)});
  }
  needs_telling = true;  // of those that found no place
}

void State::DrainRound(TimePoint now, DrainCause cause, const std::string& reason) {
  DDP_CHECK(phase == Phase::kSealed);
  phase = Phase::kDraining;
  drained_at = now;
  drain_cause = cause;
  drain_reason = reason;
  // After a loss, what fails fails because of it: there is no first cause to wait for.
  name_cause_at = cause == DrainCause::kLoss ? now : now + policy.first_cause_window;
  needs_telling = true;
  for (const auto& [id, seat] : seats) {
    Member* member = members.Find(id);
    if (member == nullptr || member->standing != Standing::kRunning) continue;
    member->standing = Standing::kStopping;
    if (!member->is_connected) continue;
    actions.push_back(
        Drain{.session = member->session, .epoch = epoch, .round = round, .reason = reason});
  }
}

Member* State::CurrentMember(TimePoint now, const Stamp& stamp) {
  Member* member = members.FindBySession(stamp.session);
  if (member != nullptr) members.Hear(*member, now);
  const bool has_round = phase == Phase::kSealed || phase == Phase::kDraining;
  if (member == nullptr || !has_round || stamp.epoch != epoch || stamp.round != round ||
      !seats.contains(member->info.id)) {
    ++ignored_messages;
    return nullptr;
  }
  return member;
}

void State::OnFailed(TimePoint now, const WorkersFailed& event) {
  const Member* member = CurrentMember(now, event.stamp);
  if (member == nullptr) return;
  const TimePoint date = now - std::clamp(event.age, Duration::zero(), Duration(now - started_at));
  // After a loss, failures are consequences; after any drain, those that are not older than it.
  const bool is_consequence =
      phase == Phase::kDraining && (drain_cause == DrainCause::kLoss || date > drained_at);
  if (is_consequence) return;
  if (!first_failure.has_value() || date < first_failure->date) {
    first_failure = DatedFailure{.reporter = member->info.id, .report = event.report, .date = date};
  }
  if (phase == Phase::kSealed) {
    DrainRound(now, DrainCause::kFailure, FailureText(event.report));
  }
}

void State::OnFirstSuccess(TimePoint now, const Stamp& stamp) {
  const Member* member = CurrentMember(now, stamp);
  if (member == nullptr || phase != Phase::kSealed) return;
  is_finishing = true;
  needs_telling = true;
}

void State::OnSucceeded(TimePoint now, const Stamp& stamp) {
  const Member* member = CurrentMember(now, stamp);
  // A node that finishes while the round drains starts again with the rest.
  if (member == nullptr || phase != Phase::kSealed) return;
  Seat& seat = seats[member->info.id];
  if (seat.has_succeeded) return;
  seat.has_succeeded = true;
  is_finishing = true;
  needs_telling = true;
  if (++succeeded_seats < static_cast<int>(seats.size())) return;
  CloseJob(now, {.exit_code = 0,
                 .reason = absl::StrCat("all ", Counted(seat.assignment.world_size, "rank"), " on ",
                                        Counted(seat.assignment.node_count, "node"), " succeeded"),
                 .first_failure = std::nullopt});
}

bool State::MayBeConsequence(const NodeId& id, const Member& member) const {
  // A node that breaks contact about when others fail has probably died, and they of it. Its own
  // failure report is its own.
  return first_failure.has_value() && !member.is_connected && first_failure->reporter != id &&
         member.suspect_since <= first_failure->date + policy.first_cause_window;
}

bool State::IsCauseUncertain() const {
  if (!first_failure.has_value()) return false;
  return std::any_of(seats.begin(), seats.end(), [&](const auto& entry) {
    const Member* member = members.Find(entry.first);
    return member != nullptr && !entry.second.has_succeeded &&
           MayBeConsequence(entry.first, *member);
  });
}

bool State::MayMoreBeReported() const {
  return std::any_of(seats.begin(), seats.end(), [&](const auto& entry) {
    const Member* member = members.Find(entry.first);
    return member != nullptr && !entry.second.has_succeeded &&
           member->standing != Standing::kWaiting;
  });
}

void State::EndDraining(TimePoint now) {
  // A node that has joined again said before all it had to say of the round.
  if (now < name_cause_at && MayMoreBeReported()) return;
  // A suspect settles the question by coming back or by being evicted: at most evict_after.
  if (IsCauseUncertain()) return;
  if (!first_failure.has_value()) {
    OpenRound(now);
    return;
  }
  const FailureReport& report = first_failure->report;
  if (restart_count < policy.max_restarts) {
    ++restart_count;
    drain_reason = FailureText(report);
    OpenRound(now);
    return;
  }
  CloseJob(now, {.exit_code = report.exit_code,
                 .reason = absl::StrCat(FailureText(report), "; ", BudgetText(policy)),
                 .first_failure = report});
}

void State::OpenRound(TimePoint now) {
  phase = Phase::kOpen;
  forming = {.is_first = false, .opened_at = now, .minimum_reached_at = std::nullopt};
  below_minimum_since.reset();
  first_failure.reset();
  seats.clear();
  succeeded_seats = 0;
  is_finishing = false;
  quorum = {};
  needs_quorum = true;
  needs_telling = true;
}

}  // namespace ddprun::rendezvous
