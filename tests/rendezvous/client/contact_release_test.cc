// What an agent does where the coordinator is of a release that it does not understand, or a
// certificate has expired.
#include <chrono>

#include <doctest/doctest.h>

#include "tests/rendezvous/client/contact_bench.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;
using Outcome = Looked::Outcome;

TEST_CASE("contact: a coordinator of another protocol is joined to be refused, and named") {
  ContactBench bench(Elsewhere());
  CHECK(bench.Step(JoinCommand{}) == "look");
  Looked other = Saw(Outcome::kOtherRelease, "runs ddprun 9.0.0 (protocol 2)");
  other.refuses = true;  // so that those who wait there hear of this node
  CHECK(bench.Step(other) == "open; say join");
  CHECK(bench.Step(HearRefusal(Refusal::kFinal)) == "close; emit failed");
  CHECK(bench.text == Contains("the coordinator at coord:29400 (10.0.0.9) runs ddprun 9.0.0"));
}

TEST_CASE("contact: a coordinator that compares no releases is not joined in another protocol") {
  ContactBench bench(Elsewhere());
  CHECK(bench.Step(JoinCommand{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kOtherRelease, "runs a ddprun")) == "emit failed");
}

TEST_CASE("contact: another release in the place of their coordinator ends no workers") {
  ContactBench bench = AssignedBench(Elsewhere(), /*is_apart=*/true);
  bench.Lose(kBroken);
  CHECK(bench.Step(Saw(Outcome::kRefused)) == "emit lost (gone)");
  CHECK(bench.Pass(seconds(1)) == "look");
  Looked other = Saw(Outcome::kOtherRelease, "runs ddprun 9.0.0 (protocol 2)");
  other.refuses = true;
  CHECK(bench.Step(other) == "emit lost (replaced)");
  CHECK(bench.text == Contains("runs ddprun 9.0.0"));
}

TEST_CASE("election: a leader of another protocol is not taken for gone, and ends the node") {
  for (const bool refuses : {true, false}) {
    CAPTURE(refuses);
    ContactBench bench(ByEtcd());
    CHECK(bench.Step(JoinCommand{}) == "look");
    Looked leader = SawLeader(Outcome::kOtherRelease);
    leader.text = "runs ddprun 9.0.0 (protocol 2)";
    leader.refuses = refuses;
    if (refuses) {
      CHECK(bench.Step(leader) == "open; say join");
      CHECK(bench.Step(HearRefusal(Refusal::kFinal)) == "close; emit failed");
    } else {
      CHECK(bench.Step(leader) == "emit failed");
    }
    CHECK(bench.text == Contains("the coordinator at 10.0.0.9:41 runs ddprun 9.0.0"));
  }
}

TEST_CASE("contact: an expired certificate proves nothing, and ends who waits") {
  Looked expired = Saw(Outcome::kExpired, "its certificate has expired");
  ContactBench bench = AssignedBench();
  bench.Lose(kBroken);
  CHECK(bench.Step(expired) == "emit lost (for good)");
  CHECK(bench.text == expired.text);
  CHECK(bench.Pass(seconds(1)) == "look");
  CHECK(bench.Step(expired) == "");  // no news
  CHECK(bench.Pass(seconds(1)) == "look");
  CHECK(bench.Step(JoinCommand{}) == "");  // the workers are gone
  SUBCASE("the coordinator's") {
    CHECK(bench.Step(expired) == "emit failed");
    CHECK(bench.text ==
          "no contact with the coordinator at coord:29400 (10.0.0.9): its certificate has expired");
  }
  SUBCASE("this node's own") {
    expired.is_own = true;
    CHECK(bench.Step(expired) == "emit failed");
    CHECK(bench.text == expired.text);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
