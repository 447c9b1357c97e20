#include "tests/rendezvous/core/machine_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kOpen:
      return "open";
    case Phase::kReadopting:
      return "readopting";
    case Phase::kSealed:
      return "sealed";
    case Phase::kDraining:
      return "draining";
    case Phase::kClosed:
      return "closed";
  }
  return "?";
}

const char* StandingName(Standing standing) {
  switch (standing) {
    case Standing::kWaiting:
      return "waiting";
    case Standing::kRunning:
      return "running";
    case Standing::kStopping:
      return "stopping";
  }
  return "?";
}

auto CountDone(const State& state) {
  return std::ranges::count_if(
      state.seats, [](const auto& entry) { return entry.second.succeeded_at.has_value(); });
}

std::string ExplainPhase(const State& state, TimePoint now) {
  const auto round_text = [](uint64_t value) { return absl::StrCat("round ", value); };
  switch (state.phase) {
    case Phase::kOpen: {
      const std::string forming_round = round_text(state.round_floor.value + 1);
      if (state.members.members().empty())
        return absl::StrCat(forming_round, " is open: no node yet");
      const std::optional<TimePoint> deadline = state.WaitDeadline();
      return absl::StrCat(
          forming_round, " is open: ", state.FormingText(now),
          deadline.has_value() ? absl::StrCat(", ", DurationText(*deadline - now), " left") : "");
    }
    case Phase::kReadopting:
      return absl::StrCat(state.ReadoptingText(), ", ", DurationText(state.readopt_until - now),
                          " left");
    case Phase::kSealed: {
      const Assignment& any = state.seats.begin()->second.assignment;
      return absl::StrCat(
          round_text(state.round.value),
          state.IsFinishing() ? " is finishing: " : " runs: ", Counted(any.node_count, "node"),
          ", world size ", any.world_size, ", restart ", state.restart_count, " of ",
          state.policy.max_restarts, ", ", CountDone(state), " done");
    }
    case Phase::kDraining:
      return absl::StrCat(round_text(state.round.value), " is being stopped: ", state.drain_reason);
    case Phase::kClosed:
      return absl::StrCat("the job is over: ", state.verdict->reason,
                          state.is_finished ? ""
                          : !state.is_told  ? "; the verdict is being recorded"
                                            : absl::StrCat("; ", state.unacknowledged.size(),
                                                           " nodes have not acknowledged"));
  }
  return "";
}

}  // namespace

std::string Explain(const RendezvousMachine& machine, TimePoint now) {
  const State& state = MachineInspector::Look(machine);
  const std::optional<TimePoint> since = state.members.CutOffSince();
  if (state.phase == Phase::kClosed || !since.has_value()) return ExplainPhase(state, now);
  return absl::StrCat(ExplainPhase(state, now), "; no node has been heard for ",
                      DurationText(now - *since));
}

std::string RenderState(const RendezvousMachine& machine, TimePoint now) {
  const State& state = MachineInspector::Look(machine);
  std::string text =
      absl::StrCat(PhaseName(state.phase), " ", state.epoch.value, ".", state.round.value,
                   " restarts=", state.restart_count, "/", state.policy.max_restarts,
                   " seats=", state.seats.size(), " done=", CountDone(state),
                   " ignored=", state.ignored_messages, state.is_finished ? " finished" : "", "\n");
  for (const auto& [id, member] : state.members.members()) {
    const auto seat = state.seats.find(id);
    absl::StrAppend(&text, "  ", id.value, " session=", member.session.value, " ",
                    StandingName(member.standing), member.is_connected ? "" : " suspect",
                    seat == state.seats.end()
                        ? ""
                        : absl::StrCat(" node_rank=", seat->second.assignment.node_rank),
                    " heard=", DurationText(now - member.last_heard), "\n");
  }
  return text;
}

}  // namespace ddprun::rendezvous
