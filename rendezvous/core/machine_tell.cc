// What everybody is told: the end of the job, and until then those that wait.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

// A node that lives comes back to a coordinator that was restarted after a pause of 2 s at most
// and a connect of 2 s; one that has not may be lost, which its return time decides.
constexpr Duration kMissedAfter = std::chrono::seconds(4);

}  // namespace

void State::WriteRecord() {
  actions.push_back(Record{.instance = instance,
                           .epoch = own_epoch,
                           .restart_count = restart_count,
                           .spent = spent,
                           .bad_nodes = bad_nodes.ToRecord(last_step),
                           .verdict = is_given_up ? std::nullopt : verdict});
}

void State::CloseJob(TimePoint now, Verdict end) {
  if (phase == Phase::kReadopting && IsMissingSeats()) {
    const int nodes = seats.begin()->second.assignment.node_count;
    missing_at_end = static_cast<size_t>(nodes) - seats.size();
  }
  phase = Phase::kClosed;
  verdict = std::move(end);
  end_at = now + record_limit;
  // Durable before it is told: a coordinator that is started again after a crash must not run a
  // job anew of which somebody has heard the end.
  WriteRecord();
}

void State::TellVerdict(TimePoint now) {
  if (phase != Phase::kClosed || is_told) return;
  is_told = true;
  end_at = now + policy.verdict_ack_timeout;
  for (const auto& [id, member] : members.members()) {
    // A suspect may come back and ask: it counts until the time is over.
    unacknowledged.insert(id);
    if (!member.is_connected) continue;
    actions.push_back(
        Conclude{.session = member.session, .epoch = epoch, .round = round, .verdict = *verdict});
  }
}

void State::GiveUp(const std::string& reason) {
  phase = Phase::kClosed;
  is_given_up = true;
  is_told = true;
  verdict = Verdict{.exit_code = kRendezvousExitCode, .reason = reason};
  for (const auto& [id, member] : members.members()) {
    if (!member.is_connected) continue;
    actions.push_back(
        Refuse{.session = member.session, .kind = Refusal::kFinal, .message = reason});
  }
}

void State::AnswerAfterEnd(TimePoint now, const NodeJoined& event) {
  const SessionId session = event.stamp.session;
  const Member* known = members.Find(event.node.id);
  const size_t nodes = step_nodes.size();
  const bool is_of_job = !event.held && FindDifference(event).empty();
  if (is_of_job && AwaitsNodesOfStep()) NoteNodeOfStep(event.node);
  const bool is_late_spare = step_nodes.size() > nodes;
  if (known == nullptr && event.stamp.instance != instance && !is_late_spare) {
    // It had no part in this job. Success or failure, the end is not its own. But a step of a
    // cluster's manager has one job: its node was to be a spare, and this job was too short for it.
    const std::string& run_id = has_policy ? policy.run_id : event.policy.run_id;
    actions.push_back(Refuse{.session = session,
                             .kind = Refusal::kJobOver,
                             .message = absl::StrCat(JobText(run_id), " is ending")});
    return;
  }
  if (is_given_up) {
    actions.push_back(
        Refuse{.session = session, .kind = Refusal::kFinal, .message = verdict->reason});
    return;
  }
  if (members.FindBySession(session) != nullptr && members.FindBySession(session) != known) {
    ++ignored_messages;
    return;
  }
  const Member& member = Admit(now, event);
  if (!is_told) return;
  if (!is_finished) unacknowledged.insert(member.info.id);
  if (event.held && IsThisRound(event.stamp) && !seats.contains(member.info.id)) {
    back_after_end.insert(member.info.id);
  }
  actions.push_back(
      Conclude{.session = session, .epoch = epoch, .round = round, .verdict = *verdict});
}

void State::On(TimePoint now, const VerdictAcked& event) {
  if (phase != Phase::kClosed || !is_told) {
    ++ignored_messages;
    return;
  }
  const Member* member = Hear(now, event.stamp);
  if (member != nullptr) unacknowledged.erase(member->info.id);
}

void State::FinishWhenDone(TimePoint now) {
  if (!is_told && now >= end_at) TellVerdict(now);
  const bool is_awaited = has_begun_closed || !unacknowledged.empty() ||
                          back_after_end.size() < missing_at_end ||
                          (AwaitsNodesOfStep() && !is_given_up);
  if (is_finished || !is_told || (is_awaited && now < end_at)) return;
  is_finished = true;
  actions.push_back(Finish{});
}

void State::On(TimePoint now, const StopOrdered& event) {
  if (Hear(now, event.stamp) == nullptr || phase == Phase::kClosed) return;
  if (event.how != StopHow::kAfterStep) {
    return CloseJob(now, {.exit_code = kStoppedExitCode,
                          .reason = absl::StrCat("stopped by ", event.reason),
                          .is_kill = event.how == StopHow::kNow});
  }
  if (!stop_reason.empty()) return;
  stop_reason = event.reason;
  for (const auto& [id, member] : members.members()) {
    if (member.is_connected) {
      actions.push_back(TellToStop{.session = member.session, .reason = stop_reason});
    }
  }
}

JobFacts State::Facts(TimePoint now) const {
  JobFacts facts{.run_id = policy.run_id,
                 .phase = phase == Phase::kOpen       ? "forming"
                          : phase == Phase::kDraining ? "stopping"
                          : phase == Phase::kClosed   ? "ended"
                                                      : "running",
                 .round = round,
                 .node_count = round_size.nodes,
                 .world_size = round_size.ranks,
                 .nodes_here = static_cast<int>(members.members().size()),
                 .min_nodes = policy.min_nodes,
                 .max_nodes = policy.max_nodes,
                 .restart_count = restart_count - (is_restart_due ? 1 : 0),
                 .max_restarts = MaxRestarts()};
  if (phase == Phase::kOpen) facts.waiting_for = FormingText(now);
  if (phase == Phase::kReadopting && !seats.empty()) facts.waiting_for = ReadoptingText();
  if (phase == Phase::kDraining) facts.waiting_for = WaitTopic();
  facts.bad_nodes = bad_nodes.count();
  facts.bad_hosts = BadHostsText(now);
  facts.deadline = WaitDeadline();
  if (phase == Phase::kOpen || phase == Phase::kDraining) facts.gone = GoneText();
  // The agents' own status takes it from the verdict as well.
  const bool is_end_of_loss =
      verdict && verdict->exit_code == kRendezvousExitCode && !verdict->first_failure;
  if (is_end_of_loss) facts.gone = verdict->reason;
  if (phase == Phase::kReadopting && IsMissingSeats() &&
      now + members.return_time(round_size.nodes) >= readopt_until + kMissedAfter) {
    facts.gone = MissingText();
  }
  facts.failure = first_failure.has_value() ? FactOf(Cause()) : last_failure;
  return facts;
}

FailureFact State::FactOf(const DatedFailure& failure) const {
  const FailureReport& report = failure.report;
  return {.rank = report.rank,
          .host = report.host,
          .text = CauseText(report),
          .round = round,
          .at = failure.date};
}

std::optional<TimePoint> State::JoinDeadline() const {
  if (phase != Phase::kOpen || !below_minimum_since.has_value()) return std::nullopt;
  return *below_minimum_since + policy.join_timeout;
}

std::optional<TimePoint> State::WaitDeadline() const {
  const std::optional<TimePoint> give_up_at = JoinDeadline();
  return phase != Phase::kOpen || give_up_at.has_value() ? give_up_at : quorum.patience_ends;
}

std::string State::FormingText(TimePoint now) const {
  if (!quorum.is_countdown) return quorum.reason;
  return absl::StrCat(quorum.reason, " for ", DurationText(*quorum.retry_at - now), " more");
}

std::string State::GoneText() const {
  std::string text;
  size_t named = 0;
  for (const auto& [id, why] : gone) {
    if (named == kNamedNodes) break;
    absl::StrAppend(&text, named++ == 0 ? "" : "; ", why);
  }
  if (gone.size() > named) absl::StrAppend(&text, "; and ", gone.size() - named, " more");
  return text;
}

std::string State::RefusedText() const {
  std::string text;
  for (const RefusedNode& node : refused) {
    absl::StrAppend(&text, text.empty() ? "refused: " : "; ", node.why);
  }
  return text;
}

std::string State::EarlyExitText(const DatedFailure& failure) const {
  const std::optional<int>& left_peer = failure.report.left_peer;
  std::optional<EarlyExit> named;
  for (const auto& [id, seat] : seats) {
    const std::optional<EarlyExit>& first = seat.first_success;
    const int first_rank = seat.assignment.first_rank;
    if (left_peer.has_value() && *left_peer >= first_rank &&
        *left_peer < first_rank + seat.local_world_size) {
      if (first.has_value() && first->rank == *left_peer) {
        named = first;
        break;
      }
      if (seat.succeeded_at.has_value()) {
        named = EarlyExit{.rank = *left_peer, .date = *seat.succeeded_at};
        break;
      }
    }
    const bool is_before = first.has_value() && first->date <= failure.date;
    if (is_before && (!named.has_value() || first->date < named->date)) named = first;
  }
  if (!named.has_value()) return "";
  const Duration before = std::max(Duration::zero(), Duration(failure.date - named->date));
  const auto tenths = std::chrono::floor<std::chrono::milliseconds>(before).count() / 100;
  return absl::StrCat("rank ", named->rank, " had exited with 0 ", tenths / 10, ".", tenths % 10,
                      " s before");
}

std::string State::ReadoptingText() const {
  const int nodes = seats.begin()->second.assignment.node_count;
  return absl::StrCat("the coordinator was restarted: ", seats.size(), " of the ", nodes,
                      " nodes of round ", round.value,
                      seats.size() == 1 ? " is back" : " are back");
}

std::string State::ShrinkText(const Assignment& next) const {
  if (next.node_count >= round_size.nodes) return "";
  return absl::StrCat(GoneText(), gone.empty() ? "" : "; ", "going on with ",
                      Counted(next.node_count, "node"), " and ", Counted(next.world_size, "rank"),
                      " instead of ", round_size.nodes, " and ", round_size.ranks);
}

std::string State::WaitTopic() const {
  switch (phase) {
    case Phase::kOpen:
      return quorum.reason;
    case Phase::kReadopting:
      return ReadoptingText();
    case Phase::kDraining:
      return absl::StrCat("round ", round.value, " is being stopped: ", drain_reason);
    case Phase::kSealed:  // WaitBesideRound
    case Phase::kClosed:
      break;
  }
  return "";
}

void State::TellWaiters(TimePoint now) {
  if (!needs_telling) return;
  if (phase == Phase::kClosed) {
    needs_telling = false;
    return;
  }
  // While the first cause is being found a member knows why it stopped; it takes a moment only.
  if (phase == Phase::kDraining && now < name_cause_at) return;
  const bool is_due = now >= next_telling;
  // To find the one who has just come is a look at every node.
  const bool is_crowd = ReviewPause(members.members().size()) > Duration{0};
  if (!is_due && (!has_newcomer || is_crowd)) return;
  has_newcomer = false;
  const Wait of_all{WaitTopic(), WaitDeadline()};
  const std::string forming = phase == Phase::kOpen ? FormingText(now) : "";
  for (auto& [id, member] : members.members()) {
    if (member.standing != Standing::kWaiting || !member.is_connected) continue;
    // Who has just come is told at once, the others when it is their time.
    if (!is_due && !member.told_topic.empty()) continue;
    const auto [topic, deadline] = phase == Phase::kSealed ? WaitBesideRound(member, now) : of_all;
    if (member.told_topic == topic && member.told_deadline == deadline) continue;
    member.told_topic = topic;
    member.told_deadline = deadline;
    actions.push_back(TellWaiting{.session = member.session,
                                  .reason = forming.empty() ? topic : forming,
                                  .deadline = deadline});
  }
  if (!is_due) return;
  needs_telling = false;
  next_telling = now + kTellInterval;
}

}  // namespace ddprun::rendezvous
