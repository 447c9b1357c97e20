// A port of this machine that takes connections and says nothing: a coordinator that a thousand
// agents reach at once, one whose process is stopped, or another program.
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "rendezvous/client/contact_core.h"
#include "tests/rendezvous/client/contact_bench.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;
using Outcome = Looked::Outcome;

// An agent on the endpoint's machine whose looks last 5 s each and find the port silent.
std::string LookAtSilence(ContactBench& bench, Duration duration) {
  std::string all, did;
  for (const TimePoint end = bench.now + duration;
       bench.now < end && did.find("failed") == did.npos;) {
    bench.now += seconds(5);
    did = bench.Step(Saw(Outcome::kSilent, "no answer within 5 s"));
    if (did != Contains("look here")) did += bench.Pass(seconds(1));
    all += did + "; ";
  }
  return all;
}

TEST_CASE("contact: a port of this machine that is silent may be a busy coordinator's for 15 s") {
  ContactBench bench(OnEndpoint());
  bench.Step(TimePassed{});
  REQUIRE(bench.Step(Hosted{Hosted::Outcome::kPortTaken}) == "look here");
  const TimePoint begin = bench.now;
  SUBCASE("and is one that answers at last") {
    CHECK(LookAtSilence(bench, seconds(10)) != Contains("failed"));
    CHECK(bench.Step(Saw(Outcome::kOurs)) == "");
    CHECK(bench.Step(JoinCommand{}) == "open; say join");
  }
  SUBCASE("and whose it is then nobody can say") {
    CHECK(LookAtSilence(bench, seconds(60)) == Contains("emit failed"));
    CHECK(bench.now - begin >= seconds(15));
    CHECK(bench.now - begin <= seconds(27));
    CHECK(
        bench.text ==
        "port 29400 of this machine, which --rdzv-endpoint names, is in use and silent for 15 s "
        "(no answer within 5 s): its coordinator is stopped or overloaded, or another program has "
        "the port");
  }
  SUBCASE("and the silence counts from its beginning") {
    CHECK(LookAtSilence(bench, seconds(10)) != Contains("failed"));
    bench.Step(Saw(Outcome::kUnreachable, "Network is down"));
    if (const std::string did = bench.Pass(seconds(1)); did == Contains("host")) {
      bench.Step(Hosted{Hosted::Outcome::kPortTaken});
    }
    CHECK(LookAtSilence(bench, seconds(10)) != Contains("failed"));
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
