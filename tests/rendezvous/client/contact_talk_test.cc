// Over a link, and the end of contact.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/client/contact_core.h"
#include "tests/rendezvous/client/contact_bench.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Outcome = Looked::Outcome;
using State = ContactCore::State;

TEST_CASE("contact: a refusal is final and names the coordinator") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  bench.Step(Saw(Outcome::kOurs));
  CHECK(bench.Step(HearRefusal(Refusal::kFinal, "no nodes")) == "emit contact; close; emit failed");
  CHECK(bench.text == "the coordinator at coord:29400 ends the wait: no nodes");
  CHECK(bench.Step(LinkEnded{true, "does not understand this node: x"}) == "");
}

TEST_CASE("contact: a coordinator that does not understand this node ends the wait") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  bench.Step(Saw(Outcome::kOurs));
  CHECK(bench.Step(LinkEnded{true, "does not understand this node: x"}) == "emit failed");
  CHECK(bench.text == "the coordinator at coord:29400 does not understand this node: x");
}

TEST_CASE("contact: beats follow the time after which a silent node is evicted") {
  const std::pair<Duration, Duration> rows[] = {{seconds(10), seconds(1)},
                                                {seconds(1000), seconds(1)},
                                                {milliseconds(900), milliseconds(300)}};
  for (const auto& [evict_after, interval] : rows) {
    ContactOptions options = Elsewhere();
    options.policy.evict_after = evict_after;
    ContactBench bench = AssignedBench(options);
    CHECK(bench.Pass(interval - milliseconds(1)) == "");
    CHECK(bench.Pass(milliseconds(1)) == "say beat");
  }
}

TEST_CASE("contact: the coordinator says how often a node beats") {
  ContactOptions options = Elsewhere();
  options.longest_beat = milliseconds(1500);
  ContactBench bench = AssignedBench(options);
  const auto next_beat = [&bench](uint64_t sequence, Duration told) {
    CHECK(bench.Step(BeatAnswered{sequence, told}) == "");
    bench.Step(Said{});
    const TimePoint from = bench.now;
    while (bench.core.NextDeadline() && bench.Pass(*bench.core.NextDeadline() - bench.now) == "") {
    }
    return bench.now - from;
  };
  CHECK(next_beat(1, milliseconds(75)) == milliseconds(75));
  CHECK(next_beat(2, Duration{0}) == milliseconds(75));  // as an older release
  CHECK(next_beat(3, milliseconds(1200)) == milliseconds(1200));
  CHECK(next_beat(4, seconds(4)) == milliseconds(1500));  // as the user wants
  CHECK(next_beat(5, Duration(1)) == milliseconds(10));
}

TEST_CASE("contact: a beat that is told waits longer than this node's own options would") {
  ContactOptions options = Elsewhere();
  options.policy.evict_after = milliseconds(300);
  ContactBench bench = AssignedBench(options);
  bench.Step(BeatAnswered{1, seconds(4)});
  CHECK(bench.Pass(milliseconds(11900)) != Contains("close"));
}

TEST_CASE("contact: the beats of an agent that shows no life any more say so") {
  ContactBench bench = AssignedBench();
  Duration interval{0};
  const auto pass = [&bench, &interval](int seconds_to_pass, bool shows_life) {
    std::string did;
    for (int i = 0; i < seconds_to_pass; ++i) {
      if (shows_life) bench.Step(LifeCommand{});
      did += bench.Pass(seconds(1)) + "; ";
      bench.Step(Said{});
      bench.Step(BeatAnswered{0, interval});
    }
    return did;
  };
  SUBCASE("and one that never showed any needs none") {
    CHECK(pass(9, false) != Contains("stuck"));
  }
  SUBCASE("after three seconds, and until it does again") {
    CHECK(pass(9, true) != Contains("stuck"));
    CHECK(pass(1, false) == "say beat; ");
    CHECK(pass(2, false) == "say stuck; say stuck; ");
    CHECK(pass(1, true) == "say beat; ");
  }
  SUBCASE("and a time in which the whole process did not run is none of them") {
    pass(3, true);
    bench.now += seconds(9);
    CHECK(bench.Step(TimePassed{}) == Contains("say beat"));
  }
  SUBCASE("and where beats are rare as well") {
    interval = seconds(4);
    const std::string did = pass(40, true);
    CHECK(did == Contains("say beat"));
    CHECK(did != Contains("stuck"));
    CHECK(pass(9, false) == Contains("say stuck"));
  }
  SUBCASE("and it comes back only once it works") {
    pass(1, true);
    pass(4, false);
    CHECK(bench.Lose(kBroken) == Contains("look"));
    CHECK(bench.Step(Saw(Outcome::kOurs)) == "");
    CHECK(bench.Pass(seconds(30)) == "");
    CHECK(bench.Step(LifeCommand{}) == "open; say join held");
  }
}

TEST_CASE("contact: a coordinator that does not answer beats is lost, and looked for anew") {
  const std::pair<Duration, Duration> rows[] = {{seconds(10), seconds(15)},
                                                {milliseconds(900), milliseconds(1350)}};
  for (const auto& [evict_after, limit] : rows) {
    ContactOptions options = Elsewhere();
    options.policy.evict_after = evict_after;
    ContactBench bench = AssignedBench(options);
    const std::string did = bench.Pass(limit);
    // Its machine is asked, and says nothing yet.
    CHECK_MESSAGE(did == "say beat; knock; close; emit lost", did);
  }
}

// The answer to a connect that nobody's kernel has answered.
Looked NoAnswer() {
  return {.outcome = Outcome::kUnreachable, .text = "timed out", .is_unanswered = true};
}

TEST_CASE("contact: a machine that answers neither data nor connects is lost at the evict time") {
  ContactBench bench = AssignedBench();
  REQUIRE(bench.Pass(seconds(5)) == "say beat; knock");
  bench.now += seconds(2);
  CHECK(bench.Step(NoAnswer()) == "");
  SUBCASE("the link looks alive") {
    CHECK(bench.Pass(milliseconds(2999)) == "");
    CHECK(bench.Pass(milliseconds(1)) == "close; emit lost (unanswered); look");
    CHECK(bench.text == "its machine has answered neither data nor connections for 10 s");
  }
  SUBCASE("the link has ended") {
    CHECK(bench.Lose(kBroken) == "emit lost; look");
    bench.now += seconds(2);
    bench.Step(NoAnswer());
    CHECK(bench.Pass(seconds(1)) == Contains("emit lost (unanswered)"));
    // It is there again, and nobody greets: that is no proof of anything.
    bench.Pass(seconds(2));
    CHECK(bench.Step(Saw(Outcome::kSilent, "no answer within 5 s")) == Contains("emit lost"));
  }
  SUBCASE("an expired certificate is a word of that machine") {
    CHECK(bench.Lose(kBroken) == "emit lost; look");
    CHECK(bench.Step(Saw(Outcome::kExpired)) == "emit lost (for good)");
    CHECK(bench.Pass(seconds(4)) != Contains("unanswered"));
  }
  SUBCASE("what this machine lacks is no word on the other") {
    CHECK(bench.Lose(kBroken) == "emit lost; look");
    bench.Step(Saw(Outcome::kClosed, "closed"));
    for (int i = 0; i < 20; ++i) {
      bench.Pass(seconds(2));
      CHECK(bench.Step(Saw(Outcome::kUnreachable, "Too many open files")) !=
            Contains("unanswered"));
    }
  }
}

TEST_CASE("contact: the machine is watched for a node that waits for its next round, too") {
  ContactBench bench = AssignedBench();
  bench.Step(JoinCommand{});
  REQUIRE(bench.Pass(seconds(5)) == Contains("knock"));
  bench.now += seconds(2);
  bench.Step(NoAnswer());
  CHECK(bench.Pass(seconds(3)) == Contains("emit lost (unanswered)"));
}

TEST_CASE("contact: a machine that connects for a silent process is not lost") {
  ContactBench bench = AssignedBench();
  REQUIRE(bench.Pass(seconds(5)) == "say beat; knock");
  bench.now += seconds(5);
  CHECK(bench.Step(Saw(Outcome::kSilent)) == "knock");
  CHECK(bench.Step(kBroken) == "emit lost");
  for (int i = 0; i < 50; ++i) {
    bench.now += seconds(5);
    CHECK(bench.Step(Saw(Outcome::kSilent)) != Contains("lost"));
    CHECK(bench.Pass(seconds(2)) != Contains("lost"));
  }
}

TEST_CASE("contact: one connect that got lost is nothing where the next is answered") {
  ContactBench bench = AssignedBench();
  REQUIRE(bench.Pass(seconds(5)) == "say beat; knock");
  bench.now += seconds(2);
  CHECK(bench.Step(NoAnswer()) == "");
  bench.now += milliseconds(2900);
  CHECK(bench.Step(BeatAnswered{1}) == "");
  CHECK(bench.Pass(seconds(4)) != Contains("lost"));
}

TEST_CASE("contact: the machine of a coordinator apart from all nodes is not watched") {
  ContactBench bench = AssignedBench(Elsewhere(), /*is_apart=*/true);
  CHECK(bench.Pass(seconds(14)) == "say beat");
}

TEST_CASE("contact: a failure's age counts until it is said, and round trips go with it") {
  ContactBench bench = AssignedBench();
  bench.now += milliseconds(30);
  bench.Step(BeatAnswered{1});
  const auto actions =
      bench.core.Step(bench.now, ReportCommand{Round{1}, WorkersFailed{}, bench.now - seconds(2)});
  REQUIRE(actions.size() == 1);
  const auto& said = std::get<SayEvent>(actions[0]);
  CHECK(std::get<WorkersFailed>(said.event).age == seconds(2));
  CHECK(said.round_trip == milliseconds(30));
}

TEST_CASE("contact: the end says what is left, closes politely, and is told once") {
  ContactBench bench = AssignedBench();
  CHECK(bench.Step(LeaveCommand{"SIGINT"}) == "say leave");
  CHECK(bench.Step(EndCommand{seconds(5)}) == "");
  CHECK(bench.Step(Said{}) == "half-close");
  CHECK(bench.Step(LinkEnded{}) == "emit ended");
  CHECK(bench.Step(EndCommand{seconds(5)}) == "");
  CHECK_FALSE(bench.core.NextDeadline());
}

TEST_CASE("contact: the end comes at its time, whoever does not answer") {
  ContactBench bench = AssignedBench();
  bench.Step(LeaveCommand{"SIGINT"});
  bench.Step(EndCommand{seconds(5)});
  CHECK(bench.Pass(milliseconds(4999)) == "");
  CHECK(bench.Pass(milliseconds(1)) == "close; emit ended");
}

TEST_CASE("contact: who seeks ends at once") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  CHECK(bench.Step(EndCommand{seconds(5)}) == "emit ended");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "");
}

// A host whose job of two nodes has its verdict, which only this agent has acknowledged.
ContactBench AckedHost() {
  ContactBench bench(OnEndpoint());
  bench.Step(JoinCommand{});
  bench.Step(Hosted{});
  REQUIRE(bench.Step(Said{}) == "say beat");
  bench.Step(Said{});
  bench.Step(HearAssign(1));
  REQUIRE(bench.Step(HearVerdict()) == "emit concluded");
  REQUIRE(bench.Step(AckCommand{}) == "say ack");
  REQUIRE(bench.Step(Said{}) == "");
  return bench;
}

TEST_CASE("contact: the port closes when all have acknowledged, not when this agent ends") {
  ContactBench bench = AckedHost();
  CHECK(bench.Step(HostFinished{}) == "stop hosting");
  CHECK(bench.Step(LinkEnded{false, "stopped"}) == "");
  CHECK(bench.Step(HostStopped{}) == "");
  CHECK(bench.Step(EndCommand{seconds(11)}) == "emit ended");
}

TEST_CASE("contact: a host waits for the others' acknowledgements, until its time is over") {
  ContactBench bench = AckedHost();
  CHECK(bench.Step(EndCommand{seconds(11)}) == "half-close");
  CHECK(bench.Step(LinkEnded{}) == "");
  SUBCASE("they come") {
    CHECK(bench.Step(HostFinished{}) == "stop hosting");
    CHECK(bench.Step(HostStopped{}) == "emit ended");
  }
  SUBCASE("they do not come") { CHECK(bench.Pass(seconds(11)) == "stop hosting; emit ended"); }
}

TEST_CASE("contact: a host that leaves without a verdict waits for nobody") {
  ContactBench bench(OnEndpoint());
  bench.Step(JoinCommand{});
  bench.Step(Hosted{});
  REQUIRE(bench.Step(Said{}) == "say beat");
  bench.Step(Said{});
  CHECK(bench.Step(LeaveCommand{"SIGTERM"}) == "say leave");
  bench.Step(EndCommand{seconds(11)});
  CHECK(bench.Step(Said{}) == "half-close");
  CHECK(bench.Step(LinkEnded{}) == "stop hosting");
  CHECK(bench.Step(HostStopped{}) == "emit ended");
}

// A bench in each state.
std::vector<std::function<ContactBench()>> AllStates() {
  return {
      [] { return ContactBench(Elsewhere()); },
      [] { return ContactBench(OnEndpoint()); },
      [] { return ContactBench(ContactOptions{}); },
      [] {
        ContactBench bench(Elsewhere());
        bench.Step(TimePassed{});
        return bench;
      },
      [] {
        ContactBench bench(Elsewhere());
        bench.Step(TimePassed{});
        bench.Step(Saw(Outcome::kOurs));
        return bench;
      },
      [] { return AssignedBench(); },
      [] { return AssignedBench(OnEndpoint()); },
      [] {
        ContactBench bench = AssignedBench(OnEndpoint());
        bench.Lose(kBroken);
        bench.Step(JoinCommand{});
        return bench;
      },
      [] { return AckedHost(); },
      [] {
        ContactBench bench = AssignedBench();
        bench.Step(HearVerdict());
        return bench;
      },
      [] {
        ContactBench bench = AckedHost();
        bench.Step(EndCommand{seconds(1)});
        return bench;
      },
      [] {
        ContactBench bench(Elsewhere());
        bench.Step(EndCommand{});
        return bench;
      },
  };
}

// Whatever comes in whatever state: one errand at a time, nothing said without a link or before
// the last was said, nothing told after the end, and EndContact always ends.
TEST_CASE("contact: every event in every state keeps the rules") {
  const auto states = AllStates();
  const std::vector<ContactEvent> events = {JoinCommand{},
                                            ReportCommand{Round{1}, WorkersFailed{}},
                                            ReportCommand{Round{1}, FirstWorkerSucceeded{}},
                                            ReportCommand{Round{1}, WorkersSucceeded{}},
                                            LeaveCommand{"x"},
                                            AckCommand{},
                                            EndCommand{seconds(1)},
                                            HostFinished{},
                                            Said{},
                                            HearAssign(1),
                                            HearAssign(2),
                                            HearVerdict(),
                                            HearRefusal(Refusal::kJobOver),
                                            HearRefusal(Refusal::kOtherJob),
                                            HearRefusal(Refusal::kFinal),
                                            BeatAnswered{1},
                                            kBroken,
                                            LinkEnded{true, "does not understand"},
                                            TimePassed{}};
  for (size_t i = 0; i < states.size(); ++i) {
    for (size_t j = 0; j < events.size(); ++j) {
      for (size_t k = 0; k < events.size(); ++k) {
        CAPTURE(i);
        CAPTURE(j);
        CAPTURE(k);
        ContactBench bench = states[i]();
        const bool was_ended = bench.core.state() == State::kEnded;
        std::string did = bench.Step(events[j]);
        did += bench.Step(events[k]);
        if (was_ended) REQUIRE(did == "");
        did += bench.Step(EndCommand{seconds(1)});
        did += bench.Pass(seconds(1));
        REQUIRE(bench.core.state() == State::kEnded);
        REQUIRE((did == Contains("emit ended")) != was_ended);
        REQUIRE(bench.Pass(std::chrono::hours(1)) == "");
      }
    }
  }
}

TEST_CASE("contact: of reasons that alternate each is told once a minute") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  std::vector<std::string> told;
  const auto look_once = [&](const std::string& text) {
    bench.now += seconds(3);
    bench.Step(TimePassed{});
    if (bench.Step(Saw(Outcome::kUnreachable, text)) == Contains("emit waiting")) {
      told.push_back(bench.text);
    }
  };
  for (int i = 0; i < 9; ++i) {
    look_once("Connection timed out");
    look_once("No route to host");
  }
  const std::string begin = "waiting for the coordinator at coord:29400 (last try: ";
  const std::vector<std::string> once = {begin + "Connection timed out)",
                                         begin + "No route to host)"};
  CHECK(told == once);
  // What lasts is told again: nobody reads for longer what is no longer true.
  for (int i = 0; i < 9; ++i) look_once("Connection timed out");
  REQUIRE(told.size() == 3);
  CHECK(told.back() == once.front());
}

}  // namespace
}  // namespace ddprun::rendezvous
