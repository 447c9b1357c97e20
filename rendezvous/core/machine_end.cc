// How the job ends and everyone hears of it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

using State = MachineInspector::State;

void State::CloseJob(TimePoint now, Verdict end) {
  phase = Phase::kClosed;
  verdict = std::move(end);
  finish_at = now + policy.verdict_ack_timeout;
  for (const auto& [id, member] : members.members()) {
    // A suspect may come back and ask: it counts until the time is over.
    unacknowledged.insert(id);
    if (!member.is_connected) continue;
    actions.push_back(
        Conclude{.session = member.session, .epoch = epoch, .round = round, .verdict = *verdict});
  }
}

void State::GiveUp(TimePoint now) {
  phase = Phase::kClosed;
  give_up_text =
      absl::StrCat("gave up after ", DurationText(policy.join_timeout), ": ", quorum.reason);
  finish_at = now;
  for (const auto& [id, member] : members.members()) {
    if (!member.is_connected) continue;
    actions.push_back(
        Refuse{.session = member.session, .kind = Refusal::kTimedOut, .message = give_up_text});
  }
}

void State::AnswerAfterEnd(TimePoint now, const NodeJoined& event) {
  const SessionId session = event.stamp.session;
  if (!verdict.has_value()) {
    actions.push_back(
        Refuse{.session = session, .kind = Refusal::kTimedOut, .message = give_up_text});
    return;
  }
  const Member* known = members.Find(event.node.id);
  if (known == nullptr && verdict->exit_code != 0) {
    // It had no part in what failed, so the failing worker's exit code is not its own.
    actions.push_back(Refuse{.session = session,
                             .kind = Refusal::kJobOver,
                             .message = absl::StrCat("the job has ended: ", verdict->reason)});
    return;
  }
  if (members.FindBySession(session) != nullptr && members.FindBySession(session) != known) {
    ++ignored_messages;
    return;
  }
  if (known != nullptr && known->is_connected && known->session != session) {
    actions.push_back(CloseSession{known->session});
  }
  Member& member = members.Admit(event.node, session, now);
  member.source_addr = event.source_addr;
  member.accepted_addr = event.accepted_addr;
  if (!is_finished) unacknowledged.insert(member.info.id);
  actions.push_back(
      Conclude{.session = session, .epoch = epoch, .round = round, .verdict = *verdict});
}

void State::OnAcked(TimePoint now, const VerdictAcked& event) {
  Member* member = members.FindBySession(event.stamp.session);
  if (member == nullptr || phase != Phase::kClosed) {
    ++ignored_messages;
    return;
  }
  members.Hear(*member, now);
  unacknowledged.erase(member->info.id);
}

void State::FinishWhenDone(TimePoint now) {
  if (is_finished || (!unacknowledged.empty() && now < finish_at)) return;
  is_finished = true;
  actions.push_back(Finish{});
}

}  // namespace ddprun::rendezvous
