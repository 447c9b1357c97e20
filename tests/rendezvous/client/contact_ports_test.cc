// A job that has further ports to meet at, where others have the endpoint's.
#include <doctest/doctest.h>

#include <chrono>

#include "rendezvous/client/contact_core.h"
#include "tests/rendezvous/client/contact_bench.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;
using Outcome = Looked::Outcome;

const Hosted kTaken{Hosted::Outcome::kPortTaken};

ContactOptions WithPorts(ContactOptions options) {
  options.more_ports = {29401, 29402};
  return options;
}

TEST_CASE("ports: the host goes to the next one, whoever has the first, without waiting") {
  for (const Outcome outcome :
       {Outcome::kForeign, Outcome::kOtherRun, Outcome::kExpired, Outcome::kClosed,
        Outcome::kSilent, Outcome::kRefused, Outcome::kUnreachable}) {
    CAPTURE(static_cast<int>(outcome));
    ContactBench bench(WithPorts(OnEndpoint()));
    CHECK(bench.Step(JoinCommand{}) == "host");
    CHECK(bench.Step(kTaken) == "look here");
    CHECK(bench.Step(Saw(outcome)) == "host 29401");
    CHECK(bench.Step(Hosted{}) == "emit hosting; open local; say join endpoint");
    CHECK(bench.text == "node1:29401");
  }
}

TEST_CASE("ports: a second agent on the host's machine finds its job there, and hosts nothing") {
  ContactBench bench(WithPorts(OnEndpoint()));
  bench.Step(JoinCommand{});
  CHECK(bench.Step(kTaken) == "look here");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
}

TEST_CASE("ports: a machine that is the host by its address goes to the next one") {
  ContactBench bench(WithPorts(Elsewhere()));
  CHECK(bench.Step(JoinCommand{}) == "look");
  Looked foreign = Saw(Outcome::kForeign);
  foreign.is_this_host = true;
  CHECK(bench.Step(foreign) == "host 29401");
}

TEST_CASE("ports: an expired certificate of another job is passed by, this node's own is not") {
  ContactBench bench(WithPorts(Elsewhere()));
  CHECK(bench.Step(JoinCommand{}) == "look");
  Looked expired = Saw(Outcome::kExpired);
  CHECK(bench.Step(expired) == "look 29401");
  expired.is_own = true;
  CHECK(bench.Step(expired) == "emit failed");
}

TEST_CASE("ports: a host that finds all of them taken says so") {
  ContactBench bench(WithPorts(OnEndpoint()));
  CHECK(bench.Step(JoinCommand{}) == "host");
  CHECK(bench.Step(kTaken) == "look here");
  CHECK(bench.Step(Saw(Outcome::kForeign)) == "host 29401");
  CHECK(bench.Step(kTaken) == "look here 29401");
  CHECK(bench.Step(Saw(Outcome::kClosed)) == "host 29402");
  CHECK(bench.Step(kTaken) == "look here 29402");
  SUBCASE("by a program") {
    CHECK(bench.Step(Saw(Outcome::kForeign)) == "emit failed");
    CHECK(bench.text ==
          "port 29402 of this machine, the last of 3 that --rdzv-endpoint gives, is in use by "
          "another program: use another port");
  }
  SUBCASE("by another job, which it does not join") {
    CHECK(bench.Step(Saw(Outcome::kOtherRun, "run-2")) == "emit failed");
    CHECK(bench.text == Contains("serves the run \"run-2\", not \"run-1\""));
  }
}

TEST_CASE("ports: the others pass by programs and jobs, and join their own") {
  ContactBench bench(WithPorts(Elsewhere()));
  CHECK(bench.Step(JoinCommand{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kForeign)) == "look 29401");
  CHECK(bench.Step(Saw(Outcome::kOtherRun, "run-2")) == "look 29402");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
  CHECK(bench.Step(HearAssign(1)) == "emit contact; emit assigned");
  CHECK(bench.text == "coord:29402 (10.0.0.9)");
}

TEST_CASE("ports: while nobody is there the others go round, and wait between the rounds") {
  ContactBench bench(WithPorts(Elsewhere()));
  CHECK(bench.Step(JoinCommand{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "look 29401");
  CHECK(bench.Step(Saw(Outcome::kForeign)) == "look 29402");
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "");
  bench.now += ContactCore::kQuietStart;
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kForeign)) == "look 29401");
  CHECK(bench.Step(Saw(Outcome::kForeign)) == "look 29402");
  CHECK(bench.Step(Saw(Outcome::kRefused, "refused")) == "emit waiting");
  CHECK(bench.text ==
        "waiting for the coordinator at coord:29400 and 2 more ports (last try: refused)");
  CHECK(bench.Pass(ContactCore::kQuietStart) == "look");
}

TEST_CASE("ports: where each is another's the others end, too") {
  ContactBench bench(WithPorts(Elsewhere()));
  CHECK(bench.Step(JoinCommand{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kForeign)) == "look 29401");
  CHECK(bench.Step(Saw(Outcome::kOtherRun, "run-2")) == "look 29402");
  CHECK(bench.Step(Saw(Outcome::kForeign, "HTTP/1.1 400")) == "emit failed");
  CHECK(bench.text ==
        "coord:29402 (10.0.0.9) is held by another program, not by a ddprun coordinator (it "
        "answers \"HTTP/1.1 400\"): use another port");
}

TEST_CASE("ports: who has met its coordinator looks for it there alone") {
  ContactBench bench(WithPorts(Elsewhere()));
  bench.Step(JoinCommand{});
  bench.Step(Saw(Outcome::kForeign));
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join");
  bench.Step(HearAssign(1));
  CHECK(bench.Lose(LinkEnded{}) == "emit lost; look 29401");
  for (const Outcome outcome : {Outcome::kRefused, Outcome::kForeign, Outcome::kClosed}) {
    bench.Step(Saw(outcome));
    CHECK(bench.Pass(seconds(1)) == "look 29401");
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
