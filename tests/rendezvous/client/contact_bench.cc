#include "tests/rendezvous/client/contact_bench.h"

#include <doctest/doctest.h>

#include <utility>
#include <variant>
#include <vector>

namespace ddprun::rendezvous {
namespace {

struct SaidLine {
  std::string operator()(const NodeJoined& e) {
    return std::string("join") + (e.held ? " held" : "") +
           (e.node.is_endpoint_node ? " endpoint" : "");
  }
  std::string operator()(const HeartbeatReceived& e) { return e.is_stuck ? "stuck" : "beat"; }
  std::string operator()(const NodeLeft&) { return "leave"; }
  std::string operator()(const WorkersFailed&) { return "failed"; }
  std::string operator()(const FirstWorkerSucceeded&) { return "first success"; }
  std::string operator()(const WorkersSucceeded&) { return "succeeded"; }
  std::string operator()(const VerdictAcked&) { return "ack"; }
  std::string operator()(const HealthChecked& e) {
    return std::string("health ") + HealthName(e.report.health);
  }
  std::string operator()(const QuestionAsked& e) { return "question " + e.question.body; }
  std::string operator()(const AnswerGiven& e) { return "answer " + std::to_string(e.id); }
  std::string operator()(const StopOrdered& e) {
    return e.how == StopHow::kAfterStep ? "stop after step"
           : e.how == StopHow::kNow     ? "stop now"
                                        : "stop";
  }
  std::string operator()(const SessionBroken&) { return "broken"; }
  std::string operator()(const Recorded&) { return "recorded"; }
  std::string operator()(const TimePassed&) { return "time"; }
};

struct EventLine {
  std::string& text;
  std::string operator()(const Waiting& e) { return text = e.reason, "waiting"; }
  std::string operator()(const Assigned&) { return "assigned"; }
  std::string operator()(const Drained&) { return "drained"; }
  std::string operator()(const Concluded&) { return "concluded"; }
  std::string operator()(const ContactMade& e) {
    text = e.place;
    return e.is_hosted_here ? "hosting" : "contact";
  }
  std::string operator()(const ContactLost& e) {
    text = e.reason;
    return e.is_lasting                     ? (e.is_gone ? "lost (replaced)" : "lost (for good)")
           : e.unanswered_for > Duration{0} ? "lost (unanswered)"
           : e.is_gone                      ? "lost (gone)"
                                            : "lost";
  }
  std::string operator()(const ContactRestored&) { return "restored"; }
  std::string operator()(const RendezvousFailed& e) { return text = e.message, "failed"; }
  std::string operator()(const Asked& e) { return text = e.body, "asked " + std::to_string(e.id); }
  std::string operator()(const Answered& e) { return e.part.is_last ? "answered" : "more answers"; }
  std::string operator()(const StopRequested& e) { return text = e.reason, "stop requested"; }
  std::string operator()(const ContactEnded&) { return "ended"; }
};

// Of another port than the endpoint's.
std::string PortText(uint16_t port) {
  return port == 0 || port == 29400 ? "" : " " + std::to_string(port);
}

struct ActionLine {
  std::string& text;
  std::string operator()(const CheckLocalName&) { return "check name"; }
  std::string operator()(const LookAtEndpoint& a) {
    if (a.is_key_only) return "look key";
    const std::string what = a.is_at_link ? "knock" : a.is_port_here ? "look here" : "look";
    return what + PortText(a.port);
  }
  std::string operator()(const HostHere& a) { return "host" + PortText(a.port); }
  std::string operator()(const StopHosting& action) {
    return action.is_resigning ? "resign" : "stop hosting";
  }
  std::string operator()(const OpenLink& a) { return a.is_local ? "open local" : "open"; }
  std::string operator()(const SayEvent& a) { return "say " + std::visit(SaidLine{}, a.event); }
  std::string operator()(const CloseLink& a) { return a.is_polite ? "half-close" : "close"; }
  std::string operator()(const Emit& a) { return "emit " + std::visit(EventLine{text}, a.event); }
};

}  // namespace

std::string ContactBench::Step(const ContactEvent& event) {
  std::string line;
  for (const ContactAction& action : core.Step(now, event)) {
    line += (line.empty() ? "" : "; ") + std::visit(ActionLine{text}, action);
  }
  return line;
}

std::string ContactBench::Lose(const ContactEvent& end) {
  const std::string did = Step(end);
  const size_t knock = did.find("knock");
  REQUIRE_MESSAGE(knock != std::string::npos, did);
  return did.substr(0, knock) + Step(Looked{.outcome = Looked::Outcome::kUnreachable});
}

std::string ContactBench::Pass(Duration duration) {
  const TimePoint end = now + duration;
  std::string line;
  // A deadline at which nothing happens would be met again at once, for ever.
  for (int steps = 0; steps < 100000; ++steps) {
    const std::optional<TimePoint> deadline = core.NextDeadline();
    if (!deadline || *deadline > end) {
      now = end;
      return line;
    }
    now = std::max(now, *deadline);
    const std::string did = Step(TimePassed{});
    if (!did.empty()) line += (line.empty() ? "" : "; ") + did;
  }
  FAIL("the core wants to be called again and again");
  return line;
}

Looked Saw(Looked::Outcome outcome, const std::string& text) {
  return Looked{.outcome = outcome, .text = text, .ip = "10.0.0.9"};
}

ContactOptions Elsewhere() {
  ContactOptions options;
  options.mode = ContactOptions::Mode::kDynamic;
  options.policy.run_id = "run-1";
  options.policy.min_nodes = options.policy.max_nodes = 2;
  options.endpoint_host = "coord";
  options.endpoint_port = 29400;
  return options;
}

ContactOptions OnEndpoint() {
  ContactOptions options = Elsewhere();
  options.endpoint_host = "node1";
  return options;
}

ContactOptions ByEtcd() {
  ContactOptions options = Elsewhere();
  options.mode = ContactOptions::Mode::kElected;
  options.endpoint_host = "etcd at h1:2379";
  options.endpoint_port = 0;
  return options;
}

Looked SawLeader(Looked::Outcome outcome, const std::string& place) {
  Looked look = Saw(outcome, place + ": Connection refused");
  look.place = place;
  return look;
}

Heard HearAssign(uint64_t round, bool coordinator_is_member) {
  Assignment assignment;
  assignment.instance = JobInstance{1, 2};
  assignment.epoch = Epoch{5};
  assignment.round = Round{round};
  assignment.coordinator_is_member = coordinator_is_member;
  return {JobInstance{1, 2}, Assign{{}, assignment}};
}

Heard HearRefusal(Refusal kind, const std::string& message) {
  return {JobInstance{1, 2}, Refuse{{}, kind, message}};
}

Heard HearVerdict() { return {JobInstance{1, 2}, Conclude{{}, Epoch{5}, Round{1}, Verdict{}}}; }

ContactBench AssignedBench(ContactOptions options, bool is_apart) {
  ContactBench bench(std::move(options));
  if (bench.Step(TimePassed{}) == "host") bench.Step(Hosted{Hosted::Outcome::kPortTaken});
  bench.Step(Looked{.outcome = Looked::Outcome::kOurs, .ip = "10.0.0.9", .is_apart = is_apart});
  REQUIRE(bench.Step(JoinCommand{}) == "open; say join");
  REQUIRE(bench.Step(HearAssign(1, !is_apart)) == "emit contact; emit assigned");
  REQUIRE(bench.Step(Said{}) == "say beat");
  REQUIRE(bench.Step(Said{}) == "");
  return bench;
}

}  // namespace ddprun::rendezvous
