// Whom an agent looks for, and when it wants to lead, where etcd says whose coordinator it is.
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "tests/rendezvous/client/contact_bench.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Outcome = Looked::Outcome;
using State = ContactCore::State;

const Hosted kHosting{.place = "10.0.0.1:7"};

// Linked to a leader elsewhere and assigned to round 1, with nothing unsaid.
ContactBench Follower() {
  ContactBench bench(ByEtcd());
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(SawLeader(Outcome::kOurs)) == "");
  CHECK(bench.Step(JoinCommand{}) == "open; say join");
  CHECK(bench.Step(HearAssign(1, false)) == "emit contact; emit assigned");
  CHECK(bench.text == "10.0.0.9:41");
  CHECK(bench.Step(Said{}) == "say beat");
  CHECK(bench.Step(Said{}) == "");
  return bench;
}

// Hosts the coordinator, and is assigned by it.
ContactBench Leading() {
  ContactBench bench(ByEtcd());
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "host");
  CHECK(bench.Step(kHosting) == "emit hosting");
  CHECK(bench.text == "10.0.0.1:7");
  CHECK(bench.Step(JoinCommand{}) == "open local; say join");
  CHECK(bench.Step(HearAssign(1, false)) == "emit assigned");
  CHECK(bench.Step(Said{}) == "say beat");
  CHECK(bench.Step(Said{}) == "");
  return bench;
}

TEST_CASE("election: an agent looks before it hosts, and joins as a node like any other") {
  Leading();
}

TEST_CASE("election: who was not quick enough looks who leads, after a moment") {
  ContactBench bench(ByEtcd());
  bench.Step(TimePassed{});
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "host");
  CHECK(bench.Step(Hosted{Hosted::Outcome::kPortTaken, "another was quicker"}) == "");
  CHECK(bench.Pass(milliseconds(10)) == "look");
  CHECK(bench.Step(SawLeader(Outcome::kOurs)) == "");
  CHECK(bench.core.state() == State::kFound);
}

TEST_CASE("election: a leader whose process is gone is followed at once, workers or not") {
  for (const Outcome outcome : {Outcome::kRefused, Outcome::kOtherRun, Outcome::kForeign}) {
    ContactBench bench = Follower();
    CHECK(bench.Step(kBroken) == "emit lost; look");
    CHECK(bench.Step(SawLeader(outcome)) == "host");
    CHECK(bench.Step(kHosting) == "emit hosting; emit restored; open local; say join held");
  }
}

TEST_CASE("election: two nodes that refuse each other take the lead in turns once, and are told") {
  ContactBench bench = Follower();
  CHECK(bench.Step(kBroken) == "emit lost; look");
  CHECK(bench.Step(SawLeader(Outcome::kRefused)) == "host");
  CHECK(bench.Step(kHosting) == "emit hosting; emit restored; open local; say join held");
  CHECK(bench.Step(HearAssign(1, false)) == "");
  CHECK(bench.Step(HostLost{"node b leads in its place"}) == "resign; close; emit lost; look");
  bench.Step(HostStopped{});
  CHECK(bench.Step(SawLeader(Outcome::kRefused, "10.0.0.5:9")) == "");
  CHECK(bench.Pass(milliseconds(20)) == "look");
  CHECK(bench.Step(SawLeader(Outcome::kRefused, "10.0.0.5:9")) == "");
  // With the lease the other is gone.
  CHECK(bench.Pass(milliseconds(500)) == "look");
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "host");
}

TEST_CASE("election: a node without workers that is refused again is told what to do") {
  ContactBench bench(ByEtcd());
  bench.Step(TimePassed{});
  CHECK(bench.Step(SawLeader(Outcome::kRefused)) == "host");
  CHECK(bench.Step(kHosting) == "emit hosting");
  bench.Step(JoinCommand{});
  bench.Step(HostLost{"node b leads in its place"});
  bench.Step(HostStopped{});
  bench.Step(SawLeader(Outcome::kRefused, "10.0.0.5:9"));
  CHECK(bench.Pass(seconds(1)) == Contains("look"));
  CHECK(bench.Step(SawLeader(Outcome::kRefused, "10.0.0.5:9")) == "emit waiting");
  CHECK(bench.text == Contains("etcd says that it leads: give each node a --local-addr"));
}

TEST_CASE("election: who has met a leader since follows one that refuses at once, as ever") {
  ContactBench bench = Follower();
  bench.Step(kBroken);
  CHECK(bench.Step(SawLeader(Outcome::kRefused)) == "host");
  bench.Step(kHosting);
  bench.Step(HearAssign(1, false));
  bench.Step(HostLost{"node b leads in its place"});
  CHECK(bench.Step(SawLeader(Outcome::kOurs, "10.0.0.5:9")) == "");
  CHECK(bench.Step(HostStopped{}) == "open; say join held");
  CHECK(bench.Step(HearAssign(1, false)) == "emit contact; emit restored");
  CHECK(bench.Step(kBroken) == "emit lost; look");
  CHECK(bench.Step(SawLeader(Outcome::kRefused, "10.0.0.5:9")) == "host");
}

TEST_CASE("election: a leader that is only silent is waited for, and followed with its lease") {
  for (const Outcome outcome : {Outcome::kSilent, Outcome::kClosed, Outcome::kUnreachable}) {
    ContactBench bench = Follower();
    CHECK(bench.Step(kBroken) == "emit lost; look");
    CHECK(bench.Step(SawLeader(outcome)) == "");
    CHECK(bench.Pass(milliseconds(20)) == "look");
    CHECK(bench.Step(Saw(Outcome::kVacant)) == "host");
  }
}

TEST_CASE(
    "election: a leader that stops answering is looked up in etcd long before it is given up") {
  ContactBench bench = Follower();
  CHECK(bench.Step(BeatAnswered{1}) == "");
  CHECK(bench.Pass(milliseconds(1400)) == "say beat");
  CHECK(bench.Pass(milliseconds(100)) == "look key");
  // It leads still: it may be slow.
  CHECK(bench.Step(SawLeader(Outcome::kFound)) == "");
  CHECK(bench.Pass(milliseconds(124)) == "");
  CHECK(bench.Pass(milliseconds(126)) == "look key");
  // Nor is etcd's silence a reason. It is asked more and more seldom.
  int looks = 0;
  for (int step = 0; step < 200; ++step) {
    CHECK(bench.Step(Saw(Outcome::kUnreachable)) == "");
    looks += bench.Pass(milliseconds(50)) == "look key" ? 1 : 0;
  }
  CHECK(looks >= 10);
  CHECK(looks <= 21);
  bench.Step(Saw(Outcome::kUnreachable));
  bench.Pass(seconds(1));
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "close; emit lost; host");
  CHECK(bench.text == "it does not answer, and its lease in etcd is over");
}

TEST_CASE("election: an agent that is silent to a leader that was followed goes to the new one") {
  ContactBench bench = Follower();
  CHECK(bench.Pass(milliseconds(1500)) == "say beat; look key");
  CHECK(bench.Step(SawLeader(Outcome::kFound, "10.0.0.5:9")) == "close; emit lost; look");
  CHECK(bench.text == "etcd names 10.0.0.5:9 in its place");
  CHECK(bench.Step(SawLeader(Outcome::kOurs, "10.0.0.5:9")) == "open; say join held");
  CHECK(bench.Step(HearAssign(1, false)) == "emit contact; emit restored");
  CHECK(bench.text == "10.0.0.5:9");
}

TEST_CASE("election: of many nodes one looks in its turn whether nobody has taken the lead") {
  ContactOptions options = ByEtcd();
  options.policy.max_nodes = 4096;
  ContactBench bench(options);
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(SawLeader(Outcome::kOurs)) == "");
  CHECK(bench.Step(JoinCommand{}) == "open; say join");
  Heard assign = HearAssign(1, false);
  Assignment& place = std::get<Assign>(assign.action).assignment;
  place.node_count = 4096;
  place.node_rank = 1024;
  CHECK(bench.Step(assign) == "emit contact; emit assigned");
  CHECK(bench.Step(kBroken) == "emit lost; look");
  SUBCASE("a leader that is there has it back at once") {
    CHECK(bench.Step(SawLeader(Outcome::kOurs)) == Contains("open; say join held"));
  }
  SUBCASE("it stands for the place in its turn") {
    CHECK(bench.Step(SawLeader(Outcome::kRefused)) == "");
    CHECK(bench.Pass(milliseconds(499)) == "");
    CHECK(bench.Pass(milliseconds(1)) == "look");
    CHECK(bench.Step(SawLeader(Outcome::kRefused)) == "host");
  }
}

TEST_CASE("election: an answering leader costs etcd nothing") {
  ContactBench bench = Follower();
  for (int beat = 1; beat <= 20; ++beat) {
    CHECK(bench.Step(BeatAnswered{static_cast<uint64_t>(beat)}) == "");
    CHECK(bench.Pass(seconds(1)) == "say beat");
    CHECK(bench.Step(Said{}) == "");
  }
}

TEST_CASE("election: a leader that is not it any more stops its coordinator, and no worker") {
  ContactBench bench = Leading();
  CHECK(bench.Step(HostLost{"node b leads in its place"}) == "resign; close; emit lost; look");
  CHECK(bench.text == "node b leads in its place");
  // Its own coordinator may stand until it has stopped.
  CHECK(bench.Step(SawLeader(Outcome::kOurs, "10.0.0.5:9")) == "");
  CHECK(bench.Step(HostStopped{}) == "open; say join held");
  CHECK(bench.Step(HearAssign(1, false)) == "emit contact; emit restored");
  CHECK(bench.text == "10.0.0.5:9");
}

TEST_CASE("election: a leader that is cut off from the others lets them lead for a while") {
  ContactBench bench = Leading();
  CHECK(bench.Step(HostLost{"it hears nobody", /*is_cut_off=*/true}) ==
        "resign; close; emit lost; look");
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "");
  bench.Step(HostStopped{});
  for (int seconds_later = 1; seconds_later < 10; ++seconds_later) {
    CHECK(bench.Pass(seconds(1)) != Contains("host"));
    CHECK(bench.Step(Saw(Outcome::kVacant)) == "");
  }
  CHECK(bench.Pass(seconds(3)) == Contains("look"));
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "host");
}

TEST_CASE("election: a leader that lost its place while nobody leads comes back to it") {
  ContactBench bench = Leading();
  CHECK(bench.Step(HostLost{"etcd has not renewed its lease"}) == "resign; close; emit lost; look");
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "");  // not while it stops
  bench.Step(HostStopped{});
  CHECK(bench.Pass(milliseconds(20)) == "look");
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "host");
  CHECK(bench.Step(kHosting) == "emit hosting; emit restored; open local; say join held");
}

TEST_CASE("election: etcd out of reach is waited for, told of, and given up with the last cause") {
  ContactOptions options = ByEtcd();
  options.policy.join_timeout = seconds(5);
  ContactBench bench(options);
  const Looked silent = Saw(Outcome::kUnreachable, "etcd at h1:2379: Connection refused");
  std::string all;
  for (int tries = 0; tries < 200 && bench.core.state() == State::kSeeking; ++tries) {
    const std::string did = bench.Pass(milliseconds(250));
    all += did + ";";
    if (did.find("look") != std::string::npos) all += bench.Step(silent) + ";";
  }
  CHECK(all == Contains("emit waiting"));
  CHECK(all == Contains("emit failed"));
  CHECK(bench.text ==
        "etcd at h1:2379 did not say whose coordinator leads within 5 s; see that it runs and "
        "answers this node; last try: etcd at h1:2379: Connection refused");
}

TEST_CASE("election: an answer of etcd's that will not change ends an agent that has no part yet") {
  ContactBench bench(ByEtcd());
  bench.Step(TimePassed{});
  CHECK(bench.Step(Saw(Outcome::kBarred, "etcd at h1:2379 refuses the user")) == "emit failed");
  CHECK(bench.text == "etcd at h1:2379 refuses the user");
  // One that has workers goes on.
  ContactBench running = Follower();
  CHECK(running.Step(kBroken) == "emit lost; look");
  CHECK(running.Step(Saw(Outcome::kBarred, "etcd at h1:2379 refuses the user")) == "");
  CHECK(running.Pass(milliseconds(20)) == "look");
}

TEST_CASE("election: what keeps an agent with workers from leading does not end it") {
  ContactBench running = Follower();
  CHECK(running.Step(kBroken) == "emit lost; look");
  CHECK(running.Step(Saw(Outcome::kVacant, "nobody leads the job")) == "host");
  const Hosted refused{.outcome = Hosted::Outcome::kFailed, .text = "etcd refuses the user"};
  const std::string then = running.Step(refused);
  CHECK(then != Contains("failed"));
  CHECK(running.Pass(std::chrono::seconds(2)) == Contains("look"));
  // One that has no part yet ends.
  ContactBench fresh(ByEtcd());
  fresh.Step(TimePassed{});
  CHECK(fresh.Step(Saw(Outcome::kVacant, "nobody leads the job")) == "host");
  CHECK(fresh.Step(refused) == "emit failed");
}

TEST_CASE("election: a node with another token than the leader's ends, and takes nothing over") {
  ContactBench bench(ByEtcd());
  bench.Step(TimePassed{});
  CHECK(bench.Step(SawLeader(Outcome::kDistrusted)) == "emit failed");
  CHECK(bench.text == Contains("is held by a program that is not of this job"));
  ContactBench running = Follower();
  CHECK(running.Step(kBroken) == "emit lost; look");
  CHECK(running.Step(SawLeader(Outcome::kDistrusted)) == "");
}

TEST_CASE("election: an expired certificate is no leader that is gone") {
  ContactBench running = Follower();
  CHECK(running.Step(kBroken) == "emit lost; look");
  CHECK(running.Step(SawLeader(Outcome::kExpired)) == "emit lost (for good)");
  CHECK(running.Pass(milliseconds(20)) == "look");
  CHECK(running.Step(JoinCommand{}) == "");  // its workers are gone
  // Another node may lead.
  CHECK(running.Step(SawLeader(Outcome::kExpired)) == "");
  CHECK(running.Pass(seconds(1)) == "look");
  CHECK(running.Step(Saw(Outcome::kVacant)) == "emit lost; host");
}

TEST_CASE("election: a node whose own certificate has expired does not lead, and ends") {
  const Hosted expired{.outcome = Hosted::Outcome::kExpired, .text = "own certificate: c"};
  ContactBench running = Follower();
  CHECK(running.Step(kBroken) == "emit lost; look");
  CHECK(running.Step(Saw(Outcome::kVacant)) == "host");
  CHECK(running.Step(expired) == "emit lost (for good)");
  CHECK(running.text == expired.text);
  CHECK(running.Pass(seconds(1)) == "look");
  CHECK(running.Step(JoinCommand{}) == "");  // its workers are gone
  CHECK(running.Step(Saw(Outcome::kVacant)) == "emit lost; host");
  CHECK(running.Step(expired) == "emit failed");
  CHECK(running.text == expired.text);
}

TEST_CASE("election: an agent that may not host waits for one that does") {
  ContactOptions options = ByEtcd();
  options.is_host = false;
  ContactBench bench(options);
  CHECK(bench.Step(TimePassed{}) == "look");
  CHECK(bench.Step(Saw(Outcome::kVacant)) == "");
  CHECK(bench.Pass(milliseconds(10)) == "look");
}

TEST_CASE("election: an agent that ends gives its place up, and watches nobody any more") {
  ContactBench bench = Leading();
  CHECK(bench.Step(EndCommand{seconds(1)}) == "half-close");
  CHECK(bench.Step(LinkEnded{}) == "stop hosting");
  CHECK(bench.Step(HostLost{"late"}) == "");
  ContactBench follower = Follower();
  CHECK(follower.Step(EndCommand{seconds(10)}) == "half-close");
  CHECK(follower.Pass(seconds(5)) == "");
}

}  // namespace
}  // namespace ddprun::rendezvous
