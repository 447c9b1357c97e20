#include "rendezvous/client/contact_core.h"

#include <doctest/doctest.h>

#include <chrono>

#include "tests/rendezvous/client/contact_bench.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Outcome = Looked::Outcome;
using State = ContactCore::State;

constexpr TimePoint kNow{seconds(1000)};

TEST_CASE("contact: an agent elsewhere looks, opens a link when it has a word, and joins") {
  ContactBench bench(Elsewhere());
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "");
  CHECK(bench.Step(JoinCommand{}) == "open; say join");
  CHECK(bench.Step(HearAssign(1)) == "emit contact; emit assigned");
  CHECK(bench.text == "coord:29400 (10.0.0.9)");
  CHECK(bench.Step(Said{}) == "say beat");
}

TEST_CASE("contact: the endpoint's agent hosts, and joins as the endpoint's") {
  ContactBench bench(OnEndpoint());
  CHECK(bench.Step(JoinCommand{}) == "host");
  CHECK(bench.Step(Hosted{}) == "emit hosting; open local; say join endpoint");
  CHECK(bench.text == "node1:29400");
  CHECK(bench.Step(Said{}) == "say beat");
  CHECK(bench.Step(HearAssign(1)) == "emit assigned");
}

TEST_CASE("contact: standalone hosts without a port, and says no place") {
  ContactBench bench(ContactOptions{});
  CHECK(bench.Step(TimePassed{}) == "host");
  CHECK(bench.Step(Hosted{}) == "emit hosting");
  CHECK(bench.text == "");
}

TEST_CASE("contact: an address of this machine makes its agent the host") {
  ContactBench bench(Elsewhere());
  bench.Step(TimePassed{});
  Looked refused = Saw(Outcome::kRefused);
  refused.is_this_host = true;
  CHECK(bench.Step(refused) == "host");
}

TEST_CASE("contact: the user's word and the static rank decide who hosts") {
  ContactOptions options = OnEndpoint();
  options.is_host = false;
  CHECK(ContactBench(options).Step(TimePassed{}) == "look");
  options = Elsewhere();
  options.is_host = true;
  CHECK(ContactBench(options).Step(TimePassed{}) == "host");
  options.mode = ContactOptions::Mode::kStatic;
  options.node_rank = 1;
  CHECK(ContactBench(options).Step(TimePassed{}) == "look");
  options.node_rank = 0;
  CHECK(ContactBench(options).Step(TimePassed{}) == "host");
}

TEST_CASE("contact: who finds its port taken looks who has it, and is a client of its own job's") {
  ContactBench bench(OnEndpoint());
  bench.Step(TimePassed{});
  CHECK(bench.Step(Hosted{Hosted::Outcome::kPortTaken}) == "look here");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "");
  CHECK(bench.Step(JoinCommand{}) == "open; say join");
}

TEST_CASE("contact: a port of this machine that another program has is an error that names it") {
  {
    ContactBench bench(OnEndpoint());
    bench.Step(TimePassed{});
    bench.Step(Hosted{Hosted::Outcome::kPortTaken});
    CHECK(bench.Step(Saw(Outcome::kForeign, "HTTP/1.0 400")) == "emit failed");
    CHECK(bench.text ==
          "port 29400 of this machine, which --rdzv-endpoint names, is in use by another program: "
          "use another port");
  }
  // One that only bound the port is tried for a second. A coordinator that has too many strangers
  // closes connections, too.
  for (const Outcome outcome : {Outcome::kClosed, Outcome::kRefused}) {
    const bool is_closed = outcome == Outcome::kClosed;
    ContactBench bench(OnEndpoint());
    std::string did = bench.Step(TimePassed{});
    const TimePoint begin = bench.now;
    while (did != Contains("failed")) {
      REQUIRE(bench.now < begin + seconds(8));
      if (did == "host") {
        did = bench.Step(Hosted{Hosted::Outcome::kPortTaken});
      } else if (did == "look here") {
        did = bench.Step(Saw(outcome));
      } else {
        did = bench.Pass(milliseconds(1));
      }
    }
    const Duration limit = is_closed ? ContactCore::kClosedLimit : ContactCore::kTakenLimit;
    CHECK(bench.now >= begin + limit);
    CHECK(bench.now < begin + limit + seconds(2));
    CHECK((bench.text == Contains("is in use by another program")) != is_closed);
    if (!is_closed) continue;
    CHECK(bench.text ==
          "port 29400 of this machine, which --rdzv-endpoint names, is in use and closes "
          "connections: another program has it, or its coordinator has too many unknown "
          "connections; use another port, or find their sender");
  }
}

TEST_CASE("contact: waiting is told after half a second, once a reason, with its deadline") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "");
  bench.now += milliseconds(600);
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "emit waiting");
  CHECK(bench.text == "waiting for the coordinator at coord:29400 (last try: Connection refused)");
  bench.now += seconds(1);
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "");
  bench.Pass(seconds(1));
  CHECK(bench.Step(Saw(Outcome::kUnreachable, "No route to host")) == "emit waiting");
}

TEST_CASE("contact: a wait without a coordinator ends after join_timeout and says what was tried") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  bench.Step(Saw(Outcome::kRefused));
  bench.now += seconds(600);
  CHECK(bench.Step(TimePassed{}) == "emit failed");
  CHECK(bench.text ==
        "no coordinator answered at coord:29400 (10.0.0.9) within 600 s; last try: Connection "
        "refused");
  CHECK(bench.core.state() == State::kOver);
}

TEST_CASE("contact: who waits where nobody named a place hears which it is, and that nobody did") {
  ContactOptions options = Elsewhere();
  options.policy.meeting_place = "h:1 (here alone)";
  ContactBench bench(options);
  bench.Step(JoinCommand{});
  CHECK(bench.Pass(seconds(2)) == "emit waiting");
  CHECK(bench.text == Contains("waiting for the coordinator at h:1 (here alone) (last try: "));
  CHECK(bench.Pass(seconds(600)) == "emit failed");
  CHECK(bench.text == Contains("no coordinator answered at h:1 (here alone) within 600 s; "));
}

TEST_CASE("contact: a look that never ends is told of, and gives up as any other") {
  ContactBench bench(Elsewhere());
  CHECK(bench.Step(JoinCommand{}) == "look");
  CHECK(bench.Pass(milliseconds(1999)) == "");
  CHECK(bench.Pass(milliseconds(1)) == "emit waiting");
  CHECK(bench.text == "waiting for the coordinator at coord:29400 (last try: no answer so far)");
  CHECK(bench.Pass(seconds(60)) == "");
  CHECK(bench.Pass(seconds(600)) == "emit failed");
}

TEST_CASE("contact: a look that lasts is told anew only when it lasts longer than others do") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  CHECK(bench.Pass(seconds(2)) == "emit waiting");
  CHECK(bench.Step(Saw(Outcome::kUnreachable, "Connection timed out")) == "emit waiting");
  CHECK(bench.Pass(seconds(29)) == "look");
  CHECK(bench.Pass(seconds(3)) == "emit waiting");
}

TEST_CASE("contact: a name that does not exist is an error, one that fails for now is not") {
  ContactBench bench(Elsewhere());
  bench.Step(TimePassed{});
  const Looked later{.outcome = Outcome::kNameLater, .text = "cannot resolve \"coord\": try again"};
  CHECK(bench.Step(later) == "");
  bench.now += seconds(1);
  bench.Step(TimePassed{});
  const Looked never{.outcome = Outcome::kNoName, .text = "cannot resolve \"coord\": unknown"};
  CHECK(bench.Step(never) == "emit failed");
  CHECK(bench.text ==
        "endpoint coord:29400: cannot resolve \"coord\": unknown; expected a host name that "
        "resolves here, or an IP address");
}

TEST_CASE("contact: the name that others are told is looked up first, whoever hosts") {
  ContactOptions options;
  options.local_addr = "me";
  ContactBench bench(options);
  CHECK(bench.Step(TimePassed{}) == "check name");
  CHECK(bench.Step(Looked{.outcome = Outcome::kFound}) == "host");
  ContactBench failing(options);
  failing.Step(TimePassed{});
  CHECK(failing.Step(Looked{.outcome = Outcome::kNameLater, .text = "no answer"}) ==
        "emit waiting");
  failing.now += seconds(1);
  CHECK(failing.Step(TimePassed{}) == "check name");
  CHECK(failing.Step(Looked{.outcome = Outcome::kNoName, .text = "no such name"}) == "emit failed");
  CHECK(failing.text == Contains("--local-addr: no such name; expected a host name"));
}

TEST_CASE("contact: another job or program on the port ends the wait of one without workers") {
  ContactBench bench(Elsewhere());
  bench.Step(TimePassed{});
  CHECK(bench.Step(Saw(Outcome::kOtherRun, "run-2")) == "");
  SUBCASE("which names it to its nodes") {
    CHECK(bench.Step(JoinCommand{}) == "open; say join");
    CHECK(bench.Step(HearRefusal(Refusal::kFinal)) == "close; emit failed");
  }
  SUBCASE("which is ending") {
    bench.Step(JoinCommand{});
    CHECK(bench.Step(HearRefusal(Refusal::kJobOver)) == "close; emit failed");
  }
  SUBCASE("which breaks the link") {
    bench.Step(JoinCommand{});
    CHECK(bench.Step(kBroken) == "emit failed");
  }
  CHECK(bench.text == Contains("coord:29400 (10.0.0.9) serves the run \"run-2\", not \"run-1\""));
  ContactBench second(Elsewhere());
  second.Step(TimePassed{});
  CHECK(second.Step(Saw(Outcome::kForeign, "SSH-2.0")) == "emit failed");
  CHECK(second.text == Contains("is held by another program"));
  CHECK(second.text == Contains("SSH-2.0"));
}

// An agent whose workers are gone, with its coordinator.
ContactBench WaitingBench(ContactOptions options = Elsewhere()) {
  ContactBench bench = AssignedBench(std::move(options));
  bench.Lose(kBroken);
  bench.Step(JoinCommand{});
  return bench;
}

constexpr Outcome kStrangers[] = {Outcome::kForeign, Outcome::kDistrusted, Outcome::kOtherRun};

TEST_CASE("contact: who has met its coordinator outwaits a stranger on the port") {
  for (const Outcome stranger : kStrangers) {
    CAPTURE(stranger);
    ContactBench bench = WaitingBench();
    CHECK(bench.Step(Saw(stranger, "SSH-2.0")) == "emit lost (replaced)");
    CHECK(bench.Pass(seconds(2)) == "look");
    CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
    CHECK(bench.Step(HearAssign(2)) == "emit restored; emit assigned");
  }
}

TEST_CASE("contact: a stranger that keeps the coordinator's port ends the wait and is named") {
  for (const Outcome stranger : kStrangers) {
    CAPTURE(stranger);
    ContactBench bench = WaitingBench();
    const TimePoint begin = bench.now;
    std::string did;
    while (did != Contains("failed")) {
      REQUIRE(bench.now < begin + seconds(70));
      did = bench.Step(Saw(stranger, "SSH-2.0"));
      if (did != Contains("failed")) REQUIRE(bench.Pass(seconds(2)) == "look");
    }
    CHECK(bench.now >= begin + ContactCore::kStrangerLimit);
    CHECK(bench.text == Contains("coord:29400 (10.0.0.9) "));
    CHECK(bench.text == Contains("SSH-2.0"));
    CHECK(bench.text == Contains("; nobody else has answered there for 60 s"));
  }
}

TEST_CASE("contact: strangers that come and go do not add up") {
  ContactBench bench = WaitingBench();
  const TimePoint begin = bench.now;
  while (bench.now < begin + seconds(300)) {
    const bool is_there = (bench.now - begin) % seconds(60) < seconds(50);
    const std::string did = bench.Step(Saw(is_there ? Outcome::kForeign : Outcome::kRefused));
    REQUIRE(did != Contains("failed"));
    REQUIRE(bench.Pass(seconds(2)) == "look");
  }
}

TEST_CASE("contact: a wait that ends while a stranger answers names the stranger") {
  ContactOptions options = Elsewhere();
  options.policy.join_timeout = seconds(20);
  ContactBench bench = WaitingBench(options);
  bench.Step(Saw(Outcome::kForeign, "SSH-2.0"));
  CHECK(bench.Pass(seconds(2)) == "look");
  CHECK(bench.Pass(seconds(20)) == Contains("emit failed"));
  CHECK(bench.text ==
        "no coordinator answered at coord:29400 (10.0.0.9) within 20 s; last try: coord:29400 "
        "(10.0.0.9) is held by another program, not by a ddprun coordinator (it answers "
        "\"SSH-2.0\"): use another port");
}

TEST_CASE("contact: a port that closes for five seconds is another program's") {
  ContactBench bench(Elsewhere());
  bench.Step(TimePassed{});
  CHECK(bench.Step(Saw(Outcome::kClosed, "closed")) == "");
  bench.now += seconds(4);
  bench.Step(TimePassed{});
  CHECK(bench.Step(Saw(Outcome::kClosed, "closed")) == "emit waiting");
  bench.now += seconds(2);
  bench.Step(TimePassed{});
  CHECK(bench.Step(Saw(Outcome::kClosed, "closed")) == "emit failed");
}

TEST_CASE("contact: a broken link is lost contact, and a new one says everything again") {
  ContactBench bench = AssignedBench();
  CHECK(bench.Lose(kBroken) == "emit lost; look");
  CHECK(bench.Step(ReportCommand{Round{1}, WorkersSucceeded{}}) == "");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join held");
  CHECK(bench.Step(Said{}) == "say succeeded");
  CHECK(bench.Step(Said{}) == "say beat");
  CHECK(bench.Step(BeatAnswered{2}) == "emit restored");
}

TEST_CASE("contact: an agent with workers waits for its coordinator without end") {
  ContactBench bench = AssignedBench();
  bench.Lose(kBroken);
  std::string did;
  for (int hour = 0; hour < 24; ++hour) {
    did += bench.Step(Saw(Outcome::kUnreachable, "No route to host"));
    did += bench.Pass(std::chrono::hours(1));
  }
  CHECK(did != Contains("failed"));
  CHECK(bench.core.state() == State::kSeeking);
}

// The coordinator waits 2 s for it: a resolver that is slow must not stand before the way back.
TEST_CASE("contact: the way back begins where the link led and is judged by the name") {
  ContactBench bench = AssignedBench();
  SUBCASE("it is there") {
    CHECK(bench.Step(kBroken) == "emit lost; knock");
    CHECK(bench.Step(Saw(Outcome::kOurs)) == Contains("open"));
  }
  SUBCASE("it has moved: nothing is proved by who answers there") {
    CHECK(bench.Step(kBroken) == "emit lost; knock");
    CHECK(bench.Step(Saw(Outcome::kForeign)) == "look");
    CHECK(bench.Step(Saw(Outcome::kOurs)) == Contains("open"));
  }
}

TEST_CASE("contact: a refusal and a foreign answer prove that the coordinator is gone") {
  for (const Outcome outcome : {Outcome::kRefused, Outcome::kOtherRun, Outcome::kForeign}) {
    ContactBench bench = AssignedBench();
    bench.Lose(kBroken);
    const bool is_refused = outcome == Outcome::kRefused;
    CHECK(bench.Step(Saw(outcome)) == (is_refused ? "emit lost (gone)" : "emit lost (replaced)"));
    bench.now += seconds(1);
    bench.Step(TimePassed{});
    CHECK(bench.Step(Saw(outcome)) == "");  // no news
    bench.now += seconds(1);
    bench.Step(TimePassed{});
    CHECK(bench.Step(Saw(Outcome::kSilent, "no answer")) == "emit lost");
  }
}

TEST_CASE("contact: an agent with workers is told of another run in its coordinator's place") {
  ContactBench bench = AssignedBench(Elsewhere(), /*is_apart=*/true);
  bench.Lose(kBroken);
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "emit lost (gone)");
  CHECK(bench.Pass(seconds(1)) == "look");
  CHECK(bench.Step(Saw(Outcome::kOtherRun, "run-2")) == "emit lost (replaced)");
  CHECK(bench.text == Contains("coord:29400 (10.0.0.9) serves the run \"run-2\", not \"run-1\""));
}

TEST_CASE("contact: a coordinator of another job proves that the one of our workers is gone") {
  ContactBench bench = AssignedBench();
  bench.Lose(kBroken);
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join held");
  CHECK(bench.Step(HearRefusal(Refusal::kOtherJob)) == "close; emit lost (replaced)");
  CHECK(bench.Pass(milliseconds(5)) == "look");
  CHECK(bench.Step(JoinCommand{}) == "");  // the workers are gone
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
  CHECK(bench.Step(HearAssign(2)) == "emit restored; emit assigned");
}

TEST_CASE("contact: silence, closing and no route prove nothing") {
  for (const Outcome outcome : {Outcome::kSilent, Outcome::kClosed, Outcome::kUnreachable,
                                Outcome::kNoName, Outcome::kNameLater}) {
    ContactBench bench = AssignedBench();
    bench.Lose(kBroken);
    CHECK(bench.Step(Saw(outcome)) == "");
  }
}

TEST_CASE("contact: who waits at the endpoint takes the port when its coordinator is gone") {
  ContactBench bench = AssignedBench(OnEndpoint());
  CHECK(bench.Lose(kBroken) == "emit lost; look here");
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "emit lost (gone)");  // its workers live
  bench.now += seconds(3);
  CHECK(bench.Step(TimePassed{}) == "look here");
  CHECK(bench.Step(JoinCommand{}) == "");  // they are gone
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "host");
  CHECK(bench.Step(Hosted{}) == "emit hosting; emit restored; open local; say join endpoint");
}

TEST_CASE("contact: another waiting agent may take the port first") {
  ContactBench bench = AssignedBench(OnEndpoint());
  bench.Lose(kBroken);
  bench.Step(JoinCommand{});
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "emit lost (gone); host");
  CHECK(bench.Step(Hosted{Hosted::Outcome::kPortTaken}) == "look here");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
  CHECK(bench.Step(HearAssign(2)) == "emit restored; emit assigned");
}

TEST_CASE("contact: nobody takes the port of a coordinator that runs apart") {
  ContactBench bench = AssignedBench(OnEndpoint(), /*is_apart=*/true);
  bench.Lose(kBroken);
  bench.Step(JoinCommand{});
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "emit lost (gone)");
  bench.now += seconds(1);
  CHECK(bench.Step(TimePassed{}) == "look here");
}

TEST_CASE("contact: a node whose rank a silent one holds asks again") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  bench.Step(Saw(Outcome::kOurs));
  CHECK(bench.Step(HearRefusal(Refusal::kRankHeld, "held")) == "close; emit waiting");
  CHECK(bench.text == "waiting: held");
  CHECK(bench.Pass(milliseconds(5)) == "look");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
  CHECK(bench.Step(HearAssign(1)) == "emit contact; emit assigned");
}

TEST_CASE("contact: a job that is ending is told of, and the next one waited for") {
  ContactBench bench(Elsewhere());
  bench.Step(JoinCommand{});
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
  CHECK(bench.Step(HearRefusal(Refusal::kJobOver)) == "close; emit waiting");
  CHECK(bench.text == "the job \"run-1\" at coord:29400 is ending; waiting for the next one");
  CHECK(bench.Pass(milliseconds(5)) == "look");
  SUBCASE("the next one comes") {
    CHECK(bench.Step(Saw(Outcome::kRefused)) == "");
    CHECK(bench.Pass(milliseconds(10)) == "look");
    CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
    CHECK(bench.Step(HearAssign(1)) == "emit contact; emit assigned");
  }
  SUBCASE("none comes") {
    // Each look finds the same one.
    while (bench.now < TimePoint(seconds(1600))) {
      const std::string did = bench.Step(Saw(Outcome::kOurs));
      REQUIRE(did == "open; say join");
      REQUIRE(bench.Step(HearRefusal(Refusal::kJobOver)) == "close");
      if (bench.Pass(seconds(2)) == Contains("failed")) break;
    }
    CHECK(bench.now <= TimePoint(seconds(1602)));
    CHECK(bench.text ==
          "the job \"run-1\" at coord:29400 (10.0.0.9) was ending, and no next one came within "
          "600 s; last try: because");
  }
}

TEST_CASE("contact: the endpoint's agent hosts the next job as soon as the port is free") {
  ContactBench bench(OnEndpoint());
  bench.Step(JoinCommand{});
  bench.Step(Hosted{Hosted::Outcome::kPortTaken});
  bench.Step(Saw(Outcome::kOurs));
  CHECK(bench.Step(HearRefusal(Refusal::kJobOver)) == "close; emit waiting");
  CHECK(bench.Pass(milliseconds(5)) == "host");
  CHECK(bench.Step(Hosted{}) == "emit hosting; open local; say join endpoint");
}

TEST_CASE("backoff: doubles to 250 ms within ten seconds, then to two seconds") {
  Backoff backoff;
  CHECK(backoff.Next(kNow, 0.0) == Duration{0});
  CHECK(backoff.Next(kNow, 1.0) == milliseconds(5));
  CHECK(backoff.Next(kNow, 1.0) == milliseconds(10));
  Duration delay{0};
  for (int i = 0; i < 20; ++i) delay = backoff.Next(kNow + seconds(9), 1.0);
  CHECK(delay == milliseconds(250));
  for (int i = 0; i < 20; ++i) delay = backoff.Next(kNow + seconds(11), 1.0);
  CHECK(delay == seconds(2));
  CHECK(backoff.Next(kNow + seconds(11), 0.0) == seconds(1));
  backoff.Reset();
  CHECK(backoff.Next(kNow, 0.5) == Duration{0});
}

// How long after `late` the first attempt comes that finds an endpoint which is up from then on.
Duration FoundAfter(Duration late, double jitter) {
  Backoff backoff;
  TimePoint attempt = kNow;
  do {
    attempt += backoff.Next(attempt, jitter);
  } while (attempt < kNow + late);
  return attempt - (kNow + late);
}

TEST_CASE("backoff: an endpoint 20 ms late is found 20 ms later, one 20 s late within 2 s") {
  for (const double jitter : {0.0, 0.25, 0.5, 0.75, 0.999}) {
    CAPTURE(jitter);
    CHECK(FoundAfter(milliseconds(0), jitter) == Duration{0});
    CHECK(FoundAfter(milliseconds(20), jitter) <= milliseconds(20));
    CHECK(FoundAfter(milliseconds(500), jitter) <= milliseconds(250));
    CHECK(FoundAfter(milliseconds(9500), jitter) <= milliseconds(250));
    CHECK(FoundAfter(seconds(20), jitter) <= seconds(2));
    CHECK(FoundAfter(seconds(599), jitter) <= seconds(2));
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
