// How the job ends and everyone hears of it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

using State = MachineInspector::State;

void State::WriteRecord() {
  actions.push_back(Record{.instance = instance,
                           .epoch = own_epoch,
                           .restart_count = restart_count,
                           .verdict = is_given_up ? std::nullopt : verdict});
}

void State::CloseJob(TimePoint now, Verdict end) {
  phase = Phase::kClosed;
  verdict = std::move(end);
  end_at = now + kRecordLimit;
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

void State::GiveUp(TimePoint now, const std::string& reason) {
  phase = Phase::kClosed;
  is_given_up = true;
  is_told = true;
  verdict = Verdict{.exit_code = kRendezvousExitCode, .reason = reason};
  end_at = now;
  for (const auto& [id, member] : members.members()) {
    if (!member.is_connected) continue;
    actions.push_back(
        Refuse{.session = member.session, .kind = Refusal::kFinal, .message = reason});
  }
}

void State::AnswerAfterEnd(TimePoint now, const NodeJoined& event) {
  const SessionId session = event.stamp.session;
  const Member* known = members.Find(event.node.id);
  if (known == nullptr && event.stamp.instance != instance) {
    // It had no part in this job. Success or failure, the end is not its own.
    const std::string& run_id = has_policy ? policy.run_id : event.policy.run_id;
    actions.push_back(Refuse{.session = session,
                             .kind = Refusal::kJobOver,
                             .message = absl::StrCat("the job \"", run_id, "\" is ending")});
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
  if (is_finished || !is_told || (IsAwaited() && now < end_at)) return;
  is_finished = true;
  actions.push_back(Finish{});
}

}  // namespace ddprun::rendezvous
