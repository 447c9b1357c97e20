// What an agent hears of its coordinator, of who is at the endpoint and of time, in any order that
// its driver may bring it in; then its end, with nobody left who answers, or calm.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/client/contact_core.h"
#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {
namespace {

using fuzz::Input;
using fuzz::Promise;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kEndTimeout = seconds(5);
constexpr Duration kCalm = seconds(120);  // far more than any wait between attempts
constexpr int kMostStepsAtOnce = 50;

ContactOptions ReadOptions(Input& input) {
  ContactOptions options;
  options.mode = static_cast<ContactOptions::Mode>(input.Number(1) % 4);
  options.policy.run_id = "run";
  options.policy.max_nodes = 2;
  options.policy.min_nodes = static_cast<int>(1 + input.Number(1) % 2);
  options.policy.max_restarts = static_cast<int>(input.Number(1) % 2);
  options.policy.join_timeout = seconds(1 + input.Number(1) % 60);
  options.policy.evict_after = milliseconds(300 * (1 + input.Number(1) % 40));
  options.endpoint_host = input.Number(1) % 2 == 0 ? "coord" : "node1";
  options.endpoint_port = 29400;
  const uint64_t extras = input.Number(1);
  if (extras % 4 == 1) options.more_ports = {29401, 29402};
  if (extras % 8 == 2) options.is_host = false;
  if (extras % 8 == 6) options.is_host = true;
  if (extras % 3 == 1) options.local_addr = "here";
  options.node_rank = extras % 5 == 0 ? 0 : 1;
  return options;
}

std::string ReadText(Input& input) { return std::string(input.Text(input.Number(1) % 8)); }

// Carries out what the core asks for as a driver does, and holds it to its contract.
class Driver {
 public:
  explicit Driver(Input& input)
      : core_(ReadOptions(input), "node1", static_cast<uint32_t>(input.Number(1)), now_) {}

  // One event of those that may come now.
  void Act(Input& input) {
    const uint64_t choice = input.Number(1);
    switch (choice % 12) {
      case 0:
        return Give(ReadCommand(input));
      case 1:
      case 2:
        if (errand_ == Errand::kHost) return AnswerHost(ReadHosted(input));
        if (errand_ != Errand::kNone) return AnswerLook(ReadLook(input));
        return Pass(input.Number(2));
      case 3:
        if (is_saying_) return GiveSaid();
        return Pass(input.Number(2));
      case 4:
        if (is_open_) return Give(BeatAnswered{input.Number(1) % 4 + sequence_ - 1});
        return Give(TimePassed{});
      case 5:
        if (is_open_) return EndLink(input.Number(1) % 8 == 0, ReadText(input));
        return Give(TimePassed{});
      case 6:
        if (is_stopping_) return GiveHostStopped();
        if (is_hosting_ && choice % 5 == 0) return Give(HostFinished{});
        if (is_hosting_) return Give(HostLost{ReadText(input)});
        return Give(TimePassed{});
      case 7:
        return Pass(input.Number(2));
      default:
        if (is_open_) return Give(ReadHeard(input));
        return PassToDeadline();
    }
  }

  // Nobody answers any more.
  void CheckEnd() {
    const TimePoint end_by = now_ + kEndTimeout;
    Give(EndCommand{kEndTimeout});
    while (core_.state() != ContactCore::State::kEnded && now_ < end_by) PassToDeadline();
    Promise(core_.state() == ContactCore::State::kEnded && now_ <= end_by,
            "contact ends in time, whoever does not answer");
    Promise(has_ended_, "the end is told");
    Give(TimePassed{});
  }

  // A coordinator is at the endpoint, or may be here, and answers at once.
  void CheckCalm() {
    const TimePoint until = now_ + kCalm;
    while (now_ < until && core_.state() != ContactCore::State::kEnded) {
      for (int i = 0; i < kMostStepsAtOnce && AnswerCalmly(); ++i) {
      }
      if (!core_.NextDeadline()) break;
      PassToDeadline();
    }
    while (AnswerCalmly()) {
    }
    Promise(core_.state() != ContactCore::State::kSeeking,
            "calm brings every agent back to its coordinator, or to an end");
    Promise(!is_lost_ || is_over_ || core_.state() == ContactCore::State::kFound,
            "contact that was lost is restored");
  }

 private:
  enum class Errand { kNone, kName, kLook, kHost };

  void Give(const ContactEvent& event) {
    for (const ContactAction& action : core_.Step(now_, event)) {
      Promise(!has_ended_, "nothing follows the end");
      std::visit([this](const auto& any) { Do(any); }, action);
    }
  }

  void Pass(uint64_t ms) {
    now_ += milliseconds(ms);
    Give(TimePassed{});
  }

  void PassToDeadline() {
    const std::optional<TimePoint> deadline = core_.NextDeadline();
    if (!deadline) return Give(TimePassed{});
    steps_at_once_ = *deadline <= now_ ? steps_at_once_ + 1 : 0;
    Promise(steps_at_once_ < kMostStepsAtOnce, "a deadline that has passed is met");
    now_ = std::max(now_, *deadline);
    Give(TimePassed{});
  }

  ContactEvent ReadCommand(Input& input) {
    const uint64_t choice = input.Number(1);
    switch (choice % 8) {
      case 0:
      case 1:
      case 2:
        has_joined_ = has_ever_joined_ = true;
        return JoinCommand{};
      case 3: {
        const Round round{1 + input.Number(1) % 4};
        if (choice % 3 == 0) return ReportCommand{round, WorkersFailed{}, now_};
        return ReportCommand{round, WorkersSucceeded{}, now_};
      }
      case 4:
        return LeaveCommand{ReadText(input), choice % 3 == 0};
      case 5:
        return AskCommand{{.id = choice, .to = {}, .body = "status"}};
      case 6:
        if (choice % 16 == 6) return AnswerCommand{choice, ReadText(input)};
        return StopCommand{static_cast<StopHow>(choice % 3), ReadText(input)};
      default:
        return AckCommand{};
    }
  }

  Looked ReadLook(Input& input) {
    const uint64_t flags = input.Number(1);
    Looked look;
    look.outcome = static_cast<Looked::Outcome>(input.Number(1) % 15);
    look.text = ReadText(input);
    look.ip = flags % 2 == 0 ? "" : "10.0.0.1";
    look.is_this_host = flags % 4 >= 2;
    look.is_apart = flags % 8 >= 4;
    look.refuses = flags % 16 >= 8;
    look.is_unanswered = look.is_own = flags % 32 >= 16;
    if (flags >= 32) look.place = "10.0.0." + std::to_string(flags % 3);
    return look;
  }

  Hosted ReadHosted(Input& input) {
    const uint64_t flags = input.Number(1);
    return {.outcome = static_cast<Hosted::Outcome>(flags % 4),
            .text = ReadText(input),
            .is_local = flags % 2 == 0,
            .place = flags % 5 == 0 ? "10.0.0.1" : ""};
  }

  Heard ReadHeard(Input& input) {
    const JobInstance instance{1, 1 + input.Number(1) % 2};
    const Epoch epoch{1 + input.Number(1) % 3};
    const Round round{1 + input.Number(1) % 4};
    switch (input.Number(1) % 8) {
      case 0:
        return {instance, TellWaiting{{}, ReadText(input), now_ + seconds(3)}};
      case 1:
        return {instance, Drain{{}, epoch, round, ReadText(input)}};
      case 2:
        return {instance, Conclude{{}, epoch, round, {}}};
      case 3:
        return {instance, Refuse{{}, static_cast<Refusal>(input.Number(1) % 3), ReadText(input)}};
      case 4:
        return {instance, AskNode{{}, round.value, ReadText(input)}};
      case 5:
        return {instance, TellToStop{{}, ReadText(input)}};
      default: {
        Assign assign;
        assign.assignment.instance = instance;
        assign.assignment.epoch = epoch;
        assign.assignment.round = round;
        assign.assignment.coordinator_is_member = input.Number(1) % 2 == 0;
        return {instance, assign};
      }
    }
  }

  void AnswerLook(const Looked& look) {
    errand_ = Errand::kNone;
    Give(look);
  }
  void AnswerHost(const Hosted& hosted) {
    errand_ = Errand::kNone;
    is_hosting_ = hosted.outcome == Hosted::Outcome::kHosting;
    Give(hosted);
  }
  void GiveSaid() {
    is_saying_ = false;
    Give(Said{});
  }
  void EndLink(bool is_final, std::string text) {
    is_open_ = is_saying_ = false;
    Give(LinkEnded{is_final, std::move(text)});
  }
  void GiveHostStopped() {
    is_stopping_ = is_hosting_ = false;
    Give(HostStopped{});
  }

  // False: there is nothing to answer.
  bool AnswerCalmly() {
    if (errand_ == Errand::kName) return AnswerLook({.outcome = Looked::Outcome::kFound}), true;
    if (errand_ == Errand::kHost) return AnswerHost({.place = "10.0.0.1"}), true;
    if (errand_ == Errand::kLook) {
      return AnswerLook({.outcome = Looked::Outcome::kOurs, .ip = "10.0.0.1", .place = "10.0.0.1"}),
             true;
    }
    if (is_stopping_) return GiveHostStopped(), true;
    if (is_open_ && is_closing_) return EndLink(false, "closed"), true;
    if (is_saying_) {
      GiveSaid();
      if (is_open_) Give(BeatAnswered{sequence_});
      return true;
    }
    return false;
  }

  void Begin(Errand errand) {
    Promise(errand_ == Errand::kNone, "one errand is under way at a time");
    errand_ = errand;
  }
  void Do(const CheckLocalName&) { Begin(Errand::kName); }
  void Do(const LookAtEndpoint&) { Begin(Errand::kLook); }
  void Do(const HostHere&) {
    Promise(!is_hosting_, "who hosts does not host again");
    Begin(Errand::kHost);
  }
  void Do(const StopHosting&) {
    Promise(is_hosting_ && !is_stopping_, "who hosts stops once");
    is_stopping_ = true;
  }
  void Do(const OpenLink& open) {
    Promise(!is_open_, "one link is open at a time");
    Promise(!open.is_local || (is_hosting_ && !is_stopping_), "a local link leads to our own");
    is_open_ = true;
    is_saying_ = is_closing_ = false;
  }
  void Do(const SayEvent& say) {
    Promise(is_open_ && !is_saying_ && !is_closing_, "one thing is said at a time on an open link");
    is_saying_ = true;
    if (say.sequence != 0) sequence_ = say.sequence;
    if (const auto* joined = std::get_if<NodeJoined>(&say.event)) {
      Promise(has_ever_joined_, "who has not joined says no join");
      Promise(!joined->held || *joined->held == assignment_, "what is held was given");
    }
  }
  void Do(const CloseLink& close) {
    Promise(is_open_ && !(close.is_polite && is_closing_), "what is open is closed");
    is_closing_ = close.is_polite;
    if (!close.is_polite) is_open_ = is_saying_ = false;
  }
  void Do(const Emit& emit) {
    std::visit([this](const auto& any) { Hear(any); }, emit.event);
    Promise(!has_failed_ || std::holds_alternative<RendezvousFailed>(emit.event) ||
                std::holds_alternative<ContactEnded>(emit.event),
            "nothing but the end follows a failure");
  }

  void Hear(const Assigned& assigned) {
    const Assignment& given = assigned.assignment;
    const bool is_newer =
        std::tie(given.epoch, given.round) > std::tie(assignment_.epoch, assignment_.round);
    Promise(has_joined_, "a place is for who has joined");
    Promise(given.instance != assignment_.instance || is_newer, "no older round is given");
    Promise(!is_concluded_, "no round follows the verdict");
    assignment_ = given;
    is_drained_ = false;
    has_joined_ = false;  // for the next one
  }
  void Hear(const Drained& drained) {
    Promise(drained.round == assignment_.round && !std::exchange(is_drained_, true),
            "a round is drained once");
  }
  void Hear(const Concluded&) {
    Promise(!std::exchange(is_concluded_, true), "the verdict is told once");
    is_over_ = true;
  }
  void Hear(const ContactMade&) { had_contact_ = true; }
  void Hear(const ContactLost& lost) {
    Promise(had_contact_, "what is lost was there");
    const auto what = std::tuple(lost.is_gone, lost.is_lasting, lost.unanswered_for);
    Promise(!is_lost_ || what != lost_, "a loss is told when it changes");
    is_lost_ = true;
    lost_ = what;
  }
  void Hear(const ContactRestored&) {
    Promise(std::exchange(is_lost_, false), "what is restored was lost");
  }
  void Hear(const RendezvousFailed&) {
    Promise(!std::exchange(has_failed_, true), "a failure is told once");
    is_over_ = true;
  }
  void Hear(const ContactEnded&) { has_ended_ = true; }
  void Hear(const auto&) {}

  TimePoint now_{seconds(1000)};
  ContactCore core_;
  Errand errand_ = Errand::kNone;
  bool is_hosting_ = false, is_stopping_ = false;
  bool is_open_ = false, is_saying_ = false, is_closing_ = false;
  uint64_t sequence_ = 0;
  int steps_at_once_ = 0;
  // What the agent knows.
  Assignment assignment_;
  bool has_ever_joined_ = false, has_joined_ = false, is_drained_ = false, is_concluded_ = false;
  bool had_contact_ = false, is_lost_ = false;
  std::tuple<bool, bool, Duration> lost_{};
  bool has_failed_ = false, is_over_ = false, has_ended_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const bool is_calm = input.Number(1) % 2 == 0;
  Driver driver(input);
  for (int i = 0; i < 500 && !input.is_empty(); ++i) driver.Act(input);
  if (is_calm) driver.CheckCalm();
  driver.CheckEnd();
  return 0;
}

}  // namespace ddprun::rendezvous
