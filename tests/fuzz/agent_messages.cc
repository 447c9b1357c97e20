// Messages of four peers, past the coordinator's doors, into its machine and its desk for
// questions.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/text.h"
#include "rendezvous/wire/convert.h"
#include "tests/fuzz/promise.h"
#include "tests/rendezvous/core/desk_bench.h"
#include "tests/rendezvous/core/invariants.h"

namespace ddprun::rendezvous {
namespace {

using fuzz::Promise;

constexpr uint64_t kSessions = 4;

class Doors {
 public:
  void Hear(uint64_t peer, std::string_view bytes) {
    v1::AgentMessage message;
    const bool is_message = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    absl::StatusOr<Event> event = absl::InvalidArgumentError("no message");
    if (is_message) event = FromProto(message);
    const bool is_open = peers_.contains(peer);
    if (!event.ok() || (!is_open && !std::holds_alternative<NodeJoined>(*event))) {
      return Break(peer, /*is_by_peer=*/false);
    }
    SayAgain(*event);
    if (!is_open) peers_[peer] = SessionId{++last_session_};
    std::visit(
        [&](auto& any) {
          if constexpr (requires { any.stamp; }) any.stamp.session = peers_[peer];
        },
        *event);
    if (auto* joined = std::get_if<NodeJoined>(&*event)) {
      joined->source_addr = "10.0.0." + std::to_string(peer);
      joined->accepted_addr = "10.0.0.100";
    }
    Step(*event);
  }

  void Break(uint64_t peer, bool is_by_peer) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    const SessionId session = found->second;
    peers_.erase(found);
    Step(SessionBroken{session, is_by_peer});
  }

  void Pass(Duration duration) {
    const TimePoint until = now_ + duration;
    int at_once = 0;
    // What is said every second is said often enough.
    for (int steps = 0; steps < 2000; ++steps) {
      const std::optional<TimePoint> deadline = NextDeadline();
      if (!deadline || *deadline > until) break;
      at_once = *deadline > now_ ? 0 : at_once + 1;
      Promise(at_once < 10, "a deadline that has passed is gone");
      now_ = std::max(now_, *deadline);
      Step(TimePassed{});
      CarryOut(desk_.TimePassed(now_));
    }
    now_ = until;
  }

 private:
  std::optional<TimePoint> NextDeadline() const {
    const std::optional<TimePoint> machine = machine_.NextDeadline(), desk = desk_.NextDeadline();
    return machine && desk ? std::min(*machine, *desk) : machine ? machine : desk;
  }

  void Step(const Event& event) {
    const std::vector<Action> actions = machine_.Step(now_, event);
    const std::vector<std::string> broken = CheckState(machine_);
    Promise(broken.empty(), "the machine's invariants hold",
            broken.empty() ? "" : broken[0] + " after " + RenderEvent(event));
    CarryOut(actions);
    if (const auto* asked = std::get_if<QuestionAsked>(&event)) {
      CarryOut(desk_.Ask(now_, asked->stamp.session, asked->question, machine_.Places()));
    } else if (const auto* answer = std::get_if<AnswerGiven>(&event)) {
      CarryOut(desk_.Answer(now_, answer->stamp.session, answer->id, answer->body));
    } else if (const auto* broken_one = std::get_if<SessionBroken>(&event)) {
      CarryOut(desk_.Forget(now_, broken_one->session));
    }
  }

  void CarryOut(std::vector<Action> actions) {
    bool is_to_record = false;
    for (Action& action : actions) {
      if (const auto* record = std::get_if<Record>(&action)) {
        is_to_record = is_to_record || record->verdict.has_value();
      }
      const std::optional<SessionId> target = TargetOf(action);
      if (!target) continue;
      auto* given = std::get_if<GiveAnswers>(&action);
      if (given != nullptr && given->is_last) given->facts = machine_.Facts(now_);
      const bool is_close = std::holds_alternative<CloseSession>(action);
      if (!is_close) Deliver(action);
      if (is_close || std::holds_alternative<Refuse>(action)) {
        std::erase_if(peers_, [&](const auto& peer) { return peer.second == *target; });
        CarryOut(desk_.Forget(now_, *target));
      }
    }
    if (is_to_record) Step(Recorded{});
  }

  void Deliver(const Action& action) {
    const v1::CoordinatorMessage message = ToProto(action, machine_.current(), now_);
    const absl::StatusOr<Action> heard = FromProto(message, now_);
    Promise(heard.ok(), "what the machine says is taken by agents",
            heard.status().ToString() + ": " + message.ShortDebugString());
  }

  static void SayAgain(const Event& event) {
    const auto said = ToProto(event, Duration{0});
    // Escaping makes texts longer, at worst too long.
    if (absl::IsResourceExhausted(said.status())) return;
    Promise(said.ok(), "an event that was heard can be said", said.status().ToString());
    const absl::StatusOr<Event> heard = FromProto(*said);
    Promise(heard.ok(), "an event that was heard and said is heard", heard.status().ToString());
    const auto again = ToProto(*heard, Duration{0});
    Promise(again.ok() && again->SerializeAsString() == said->SerializeAsString(),
            "an event is heard as it was said", said->ShortDebugString());
  }

  TimePoint now_{std::chrono::hours(1)};
  testing::DeskBench desk_;
  RendezvousMachine machine_{
      std::nullopt,
      Beginning{.run_id = "", .epoch = Epoch{5}, .instance = {7, 1}, .verdict = std::nullopt},
      now_};
  std::map<uint64_t, SessionId> peers_;
  uint64_t last_session_ = 0;
};

}  // namespace

// Each message: a byte that says whose it is and how long after the last one, two bytes of length.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  Doors doors;
  while (!input.is_empty()) {
    const uint64_t head = input.Number(1);
    const uint64_t length = input.Number(2);
    doors.Pass(std::chrono::milliseconds(head / 8 * 250));
    if (head % 8 < kSessions) {
      doors.Hear(head % 8, input.Text(length));
    } else {
      doors.Break(head % 8 - kSessions, length % 2 == 1);
    }
  }
  doors.Pass(std::chrono::hours(24));
  return 0;
}

}  // namespace ddprun::rendezvous
