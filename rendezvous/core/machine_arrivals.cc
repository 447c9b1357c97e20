// Nodes that come while a round runs which has room for them: when it is restarted with them.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

// "node b joined", "5 nodes joined: b, c, d and 2 more".
std::string JoinedText(int count, const std::vector<std::string>& names) {
  if (count == 1) return absl::StrCat("node ", names.front(), " joined");
  const int unnamed = count - static_cast<int>(names.size());
  return absl::StrCat(Counted(count, "node"), " joined: ", absl::StrJoin(names, ", "),
                      unnamed > 0 ? absl::StrCat(" and ", unnamed, " more") : "");
}

}  // namespace

void State::NoteArrival(TimePoint now, Member& member) {
  const bool runs = phase == Phase::kSealed || phase == Phase::kReadopting;
  if (runs && !member.waits_since) member.waits_since = now;
  if (!member.came_at && round != Round{} && member.previous_rank < 0) {
    member.came_at = now;
    member.paused_until = arrivals.PausedUntil(NodeName(member.info), now);
  }
  ReviewArrivalsSoon(now);
}

void State::ReviewArrivalsSoon(TimePoint now) {
  growth.review_at = std::min(growth.review_at, now + ReviewPause(members.members().size()));
}

void State::ReviewArrivals(TimePoint now) {
  if (now < growth.review_at) return;
  growth.review_at = TimePoint::max();
  growth.due.reset();
  growth.is_held_back = false;
  needs_telling = true;
  if (!HasRoom() || growth.is_asked || policy.scale_up == ScaleUp::kRestart) return;
  int count = 0;
  TimePoint first = TimePoint::max();
  std::vector<std::string> names;
  for (const auto& [id, member] : members.members()) {
    const bool waits = member.standing == Standing::kWaiting && member.is_connected;
    if (!waits || !member.waits_since) continue;
    if (member.paused_until > now) {
      growth.review_at = std::min(growth.review_at, member.paused_until);
      continue;
    }
    ++count;
    first = std::min(first, std::max(*member.waits_since, member.paused_until));
    if (names.size() < kNamedNodes) names.push_back(members.NameOf(member));
  }
  if (count == 0) return;
  const bool is_full = static_cast<int>(seats.size()) + count >= policy.max_nodes;
  const TimePoint called = is_full ? now : first + std::min(policy.last_call, kArrivalCall);
  growth.is_held_back = arrivals.NextRestartAt() > std::max(called, now);
  const TimePoint due = std::max(called, arrivals.NextRestartAt());
  if (due > now) {
    growth.due = due;
    growth.review_at = std::min(growth.review_at, due);
    return;
  }
  growth.reason = JoinedText(count, names);
  if (policy.scale_up == ScaleUp::kNow) return DrainRound(now, DrainCause::kArrival, growth.reason);
  growth.is_asked = true;
  for (const auto& [id, seat] : seats) {
    const Member* member = members.Find(id);
    if (member != nullptr && member->is_connected) TellToScaleUp(*member);
  }
}

void State::TellToScaleUp(const Member& member) {
  actions.push_back(TellToStop{.session = member.session,
                               .reason = growth.reason,
                               .is_to_scale_up = true,
                               .epoch = epoch,
                               .round = round});
}

bool State::HasStoppedToScaleUp() const {
  const auto have_read = [this](StopRead why) {
    return std::ranges::any_of(seats,
                               [why](const auto& entry) { return entry.second.stop_read == why; });
  };
  return stop_reason.empty() && have_read(StopRead::kToScaleUp) && !have_read(StopRead::kToEnd);
}

State::Wait State::WaitBesideRound(const Member& member, TimePoint now) const {
  const std::string nodes = absl::StrCat(Counted(static_cast<int>(seats.size()), "node"), " (max ",
                                         policy.max_nodes, ")");
  const std::string runs = absl::StrCat("round ", round.value, " runs on ", nodes);
  if (growth.is_asked && stop_reason.empty()) {
    return {absl::StrCat("waiting until the workers of ",
                         Counted(static_cast<int>(seats.size()), "node"),
                         " have ended after their step (--scale-up=graceful)")};
  }
  if (!HasRoom()) {
    return {absl::StrCat("standing by as a spare: round ", round.value,
                         IsFinishing() ? " is finishing on " : " runs on ", nodes)};
  }
  if (member.paused_until > now) {
    return {absl::StrCat("waiting, as host ", NodeName(member.info),
                         " joined this job and left it, or was lost, within the last hour: ", runs),
            member.paused_until};
  }
  if (policy.scale_up == ScaleUp::kRestart) {
    return {absl::StrCat("waiting for the next restart (--scale-up=restart): ", runs)};
  }
  if (growth.is_held_back) {
    return {absl::StrCat("waiting for the next restart, as new nodes have restarted the job ",
                         ArrivalLog::kMaxRestarts, " times within an hour: ", runs),
            growth.due};
  }
  return {absl::StrCat(
              "waiting for more nodes before ",
              policy.scale_up == ScaleUp::kNow ? "a restart: " : "the workers are asked to stop: ",
              runs),
          growth.due};
}

}  // namespace ddprun::rendezvous
