#include "rendezvous/core/membership.h"

#include <doctest/doctest.h>

#include "tests/rendezvous/core/builders.h"

namespace ddprun::rendezvous {
namespace {

using namespace testing;  // NOLINT: builders
using std::chrono::milliseconds;
using std::chrono::seconds;

Member& AdmitRemote(Membership& members, const std::string& name, uint64_t session, TimePoint now) {
  return members.Admit(Join(TestPolicy(1, 1), name, session), now);
}

// It is heard at each second of that time.
void HearFrom(Membership& members, Member& member, int first, int last) {
  for (int second = first; second <= last; ++second) {
    members.Hear(member, At(std::chrono::seconds(second)));
  }
}

TEST_CASE("membership: a node expires evict_after from its last word, not before") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  Member& b = AdmitRemote(members, "b", 2, At(0s));
  CHECK(members.Expired(At(2s)).empty());
  HearFrom(members, b, 1, 9);
  CHECK(members.Expired(At(10s) - Duration(1)).empty());
  CHECK(members.Expired(At(10s)) == std::vector<NodeId>{NodeId{"a"}});
  members.Remove(NodeId{"a"});
  CHECK(members.NextExpiry() == At(19s));
  Member& c = AdmitRemote(members, "c", 3, At(11s));
  HearFrom(members, c, 12, 18);
  CHECK(members.Expired(At(19s)) == std::vector<NodeId>{NodeId{"b"}});
}

TEST_CASE("membership: the more nodes there are the fewer are the beats of each") {
  const auto interval = [](Duration evict_after, uint64_t nodes) {
    Membership members(evict_after);
    for (uint64_t i = 1; i <= nodes; ++i) AdmitRemote(members, "n" + std::to_string(i), i, At(0s));
    return members.beat_interval();
  };
  CHECK(interval(10s, 1) == 1s);
  CHECK(interval(10s, 1000) == 1s);
  CHECK(interval(10s, 1700) == 1700ms);
  CHECK(interval(10s, 4096) == 2500ms);
  CHECK(interval(60s, 4096) == 4096ms);
  CHECK(interval(300ms, 2) == 75ms);
}

TEST_CASE("membership: a node that beats and does not work is as silent as one that says nothing") {
  for (const bool is_remote : {true, false}) {
    CAPTURE(is_remote);
    Membership members(10s);
    NodeJoined join = Join(TestPolicy(1, 1), "a", 1);
    if (!is_remote) join.source_addr.clear();
    Member& a = members.Admit(join, At(0s));
    Member& b = AdmitRemote(members, "b", 2, At(0s));
    std::vector<NodeId> expired;
    for (int second = 1; second <= 12; ++second) {
      members.Hear(b, At(seconds(second)));
      members.Hear(a, At(seconds(second)), /*is_stuck=*/second > 2);
      expired = members.Expired(At(seconds(second)));
      CHECK(expired.size() == (second < 12 ? 0 : 1));
    }
    CHECK(expired == std::vector<NodeId>{NodeId{"a"}});
    members.Hear(a, At(12s));
    CHECK(members.Expired(At(21s)).empty());
  }
}

TEST_CASE("membership: where nobody is heard nobody expires, until the first is heard again") {
  Membership members(10s);
  Member& a = AdmitRemote(members, "a", 1, At(0s));
  AdmitRemote(members, "b", 2, At(900ms));
  CHECK(members.Expired(At(10s)).empty());
  CHECK(members.CutOffSince() == At(900ms));
  CHECK(members.Expired(At(500s)).empty());
  members.Hear(a, At(500s));
  CHECK(!members.CutOffSince().has_value());
  HearFrom(members, a, 501, 509);
  CHECK(members.Expired(At(510s) - Duration(1)).empty());
  CHECK(members.Expired(At(510s)) == std::vector<NodeId>{NodeId{"b"}});
}

TEST_CASE("membership: after several beats without a word everybody has a new evict time") {
  Membership members(10s);
  Member& a = AdmitRemote(members, "a", 1, At(0s));
  AdmitRemote(members, "b", 2, At(0s));
  members.Hear(a, At(9s));  // before anybody's time was over
  HearFrom(members, a, 10, 18);
  CHECK(members.Expired(At(19s) - Duration(1)).empty());
  CHECK(members.Expired(At(19s)) == std::vector<NodeId>{NodeId{"b"}});
}

TEST_CASE("membership: after silence everybody has the time that an agent may take to return") {
  Membership members(1s);
  Member& a = AdmitRemote(members, "a", 1, At(0s));
  AdmitRemote(members, "b", 2, At(0s));
  CHECK(members.Expired(At(100s)).empty());
  const auto pass_to = [&](Duration until) {
    std::vector<NodeId> expired;
    for (Duration at = 100s; at <= until; at += 300ms) {
      members.Hear(a, At(at));
      for (const NodeId& id : members.Expired(At(at))) expired.push_back(id);
    }
    return expired;
  };
  CHECK(pass_to(107s).empty());
  CHECK(pass_to(109s) == std::vector<NodeId>{NodeId{"b"}});
}

// When "a", which says nothing, expires while "b" is heard at these times; zero: not within `last`.
Duration ExpiryBeside(Membership& members, Member& b, Duration first, Duration step, int words,
                      Duration last) {
  for (Duration at = first; at < last; at += step) {
    for (int word = 0; word < words; ++word) {
      members.Hear(b, At(at + word * milliseconds(100)));
      if (!members.Expired(At(at + word * milliseconds(100))).empty()) return at;
    }
  }
  return Duration{0};
}

TEST_CASE("membership: beats of others that come late for ever keep no dead node") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  Member& b = AdmitRemote(members, "b", 2, At(0s));
  SUBCASE("in bursts") {
    const Duration expiry = ExpiryBeside(members, b, 4s, 4s, 3, 600s);
    CHECK(expiry >= 30s);
    CHECK(expiry <= 50s);
  }
  SUBCASE("and a network that is away for long at a time does not count as that") {
    // 3 s of each 100 s count, and what the nodes get to come back.
    const Duration expiry = ExpiryBeside(members, b, 100s, 100s, 3, 3000s);
    CHECK(expiry >= 200s);
    CHECK(expiry <= 1200s);
  }
}

TEST_CASE("membership: a beat that is late spares no other node") {
  for (const Duration interval : {Duration(1s), Duration(1900ms), Duration(3s)}) {
    Membership members(10s);
    Member& a = AdmitRemote(members, "a", 1, At(0s));
    AdmitRemote(members, "b", 2, At(0s));
    for (Duration at = interval; at < 10s; at += interval) members.Hear(a, At(at));
    CHECK(members.Expired(At(10s)) == std::vector<NodeId>{NodeId{"b"}});
  }
}

TEST_CASE("membership: a broken session does not shorten the time to expiry") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  Member* broken = members.BreakSession({SessionId{1}}, At(2s));
  REQUIRE(broken != nullptr);
  CHECK(!broken->is_connected);
  CHECK(broken->suspect_since == At(2s));
  CHECK(members.FindBySession(SessionId{1}) == nullptr);
  HearFrom(members, AdmitRemote(members, "b", 2, At(2s)), 3, 9);
  CHECK(members.Expired(At(9s)).empty());
  CHECK(members.Expired(At(10s)).size() == 1);
}

TEST_CASE("membership: a node that closes while it is heard has two seconds to come back") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  Member& b = AdmitRemote(members, "b", 2, At(0s));
  HearFrom(members, b, 1, 3);
  members.Hear(*members.Find(NodeId{"a"}), At(3s));
  members.BreakSession({.session = SessionId{1}, .is_by_peer = true}, At(3500ms));
  CHECK(members.NextExpiry() <= At(5500ms));
  HearFrom(members, b, 4, 5);
  CHECK(members.Expired(At(5500ms) - Duration(1)).empty());
  SUBCASE("it stays away") {
    CHECK(members.Expired(At(5500ms)) == std::vector<NodeId>{NodeId{"a"}});
  }
  SUBCASE("it is back") {
    AdmitRemote(members, "a", 3, At(5499ms));
    HearFrom(members, b, 6, 15);
    CHECK(members.Expired(At(15499ms) - Duration(1)).empty());
  }
}

TEST_CASE("membership: a session that ends after silence waits for the evict time") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  Member& b = AdmitRemote(members, "b", 2, At(0s));
  HearFrom(members, b, 1, 5);
  // So ends one that our own keepalive gives up.
  members.BreakSession({.session = SessionId{1}, .is_by_peer = true}, At(5s));
  HearFrom(members, b, 6, 9);
  CHECK(members.Expired(At(10s) - Duration(1)).empty());
  CHECK(members.Expired(At(10s)) == std::vector<NodeId>{NodeId{"a"}});
}

TEST_CASE("membership: where all close and nobody is heard their two seconds wait for a word") {
  Membership members(10s);
  for (uint64_t session : {1, 2, 3}) {
    AdmitRemote(members, std::string(1, static_cast<char>('a' + session - 1)), session, At(0s));
  }
  for (uint64_t session : {1, 2, 3}) {
    members.BreakSession({.session = SessionId{session}, .is_by_peer = true}, At(0s));
  }
  CHECK(members.Expired(At(2s)).empty());
  CHECK(members.Expired(At(2700ms)).empty());
  Member& a = AdmitRemote(members, "a", 4, At(2800ms));
  CHECK(members.Expired(At(2800ms)).empty());
  members.Hear(a, At(3800ms));
  CHECK(members.Expired(At(4800ms) - Duration(1)).empty());
  members.Hear(a, At(4800ms));
  CHECK(members.Expired(At(4800ms)) == std::vector<NodeId>{NodeId{"b"}, NodeId{"c"}});
}

TEST_CASE("membership: amnesty holds for those that closed, too") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  Member& b = AdmitRemote(members, "b", 2, At(0s));
  members.GrantAmnesty(At(1s), 8s);
  members.BreakSession({.session = SessionId{1}, .is_by_peer = true}, At(1s));
  HearFrom(members, b, 1, 9);
  CHECK(members.Expired(At(9s) - Duration(1)).empty());
  CHECK(members.Expired(At(9s)) == std::vector<NodeId>{NodeId{"a"}});
}

TEST_CASE("membership: an evict time below two seconds is the time to come back as well") {
  Membership members(900ms);
  AdmitRemote(members, "a", 1, At(0s));
  Member& b = AdmitRemote(members, "b", 2, At(0s));
  members.BreakSession({.session = SessionId{1}, .is_by_peer = true}, At(100ms));
  for (const Duration at : {300ms, 600ms}) members.Hear(b, At(at));
  CHECK(members.Expired(At(900ms) - Duration(1)).empty());
  CHECK(members.Expired(At(900ms)) == std::vector<NodeId>{NodeId{"a"}});
}

TEST_CASE("membership: a node of this very process is never silent while connected") {
  Membership members(10s);
  NodeJoined own = Join(TestPolicy(1, 1), "a", 1);
  own.source_addr.clear();
  members.Admit(own, At(0s));
  CHECK(members.Expired(At(1000s)).empty());
  members.BreakSession({SessionId{1}}, At(1000s));
  HearFrom(members, AdmitRemote(members, "b", 2, At(1001s)), 1002, 1009);
  CHECK(members.Expired(At(1009s)).empty());
  CHECK(members.Expired(At(1010s)) == std::vector<NodeId>{NodeId{"a"}});
}

TEST_CASE("membership: where the own node is quiet too this process did not run") {
  Membership members(300ms);
  NodeJoined join = Join(TestPolicy(1, 1), "own", 1);
  join.source_addr.clear();
  Member& own = members.Admit(join, At(0s));
  Member& b = AdmitRemote(members, "b", 2, At(0s));
  CHECK(members.Expired(At(500ms)).empty());
  // What waited in the sockets is heard now, from those that live.
  for (const Duration at : {510ms, 600ms, 700ms, 800ms}) members.Hear(own, At(at));
  CHECK(members.Expired(At(810ms) - Duration(1)).empty());
  CHECK(members.Expired(At(810ms)) == std::vector<NodeId>{b.info.id});
}

TEST_CASE("membership: amnesty starts everybody's silence afresh") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  AdmitRemote(members, "b", 2, At(0s));
  Member& c = AdmitRemote(members, "c", 3, At(0s));
  HearFrom(members, c, 1, 5);
  members.GrantAmnesty(At(6s), 10s);
  HearFrom(members, c, 6, 15);
  CHECK(members.Expired(At(15s)).empty());
  CHECK(members.Expired(At(16s)).size() == 2);
}

TEST_CASE("membership: a newer session of a node replaces the older and keeps its arrival") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  AdmitRemote(members, "b", 2, At(0s));
  Member& again = AdmitRemote(members, "a", 3, At(1s));
  CHECK(again.arrival == 1);
  CHECK(members.members().size() == 2);
  CHECK(members.session_count() == 2);
  CHECK(members.FindBySession(SessionId{1}) == nullptr);
  CHECK(members.FindBySession(SessionId{3}) == &again);
  // The end of the replaced session is not the end of the node's contact.
  CHECK(members.BreakSession({SessionId{1}}, At(2s)) == nullptr);
  CHECK(again.is_connected);
}

TEST_CASE("membership: a removed node leaves nothing behind") {
  Membership members(10s);
  AdmitRemote(members, "a", 1, At(0s));
  members.Remove(NodeId{"a"});
  members.Remove(NodeId{"never"});
  CHECK(members.members().empty());
  CHECK(members.session_count() == 0);
  CHECK(!members.NextExpiry().has_value());
}

Candidates Ready(int count) { return {.ready = count, .absent = 0, .absent_names = {}}; }

FormingRound First(std::optional<TimePoint> minimum_reached_at = std::nullopt) {
  return {.is_first = true, .opened_at = At(0s), .minimum_reached_at = minimum_reached_at};
}

FormingRound Later(std::optional<TimePoint> minimum_reached_at = std::nullopt) {
  return {.is_first = false, .opened_at = At(0s), .minimum_reached_at = minimum_reached_at};
}

TEST_CASE("quorum: max_nodes seal at once, in a first round and in a later one") {
  const Policy policy = TestPolicy(2, 4);
  CHECK(DecideQuorum(At(0s), First(At(0s)), Ready(4), policy).ready);
  CHECK(DecideQuorum(At(0s), Later(At(0s)), Ready(4), policy).ready);
  CHECK(DecideQuorum(At(0s), First(At(0s)), Ready(5), policy).ready);
}

TEST_CASE("quorum: below the minimum no time makes a round") {
  const Policy fixed = TestPolicy(2, 2);
  const QuorumVerdict one = DecideQuorum(At(9999s), First(), Ready(1), fixed);
  CHECK(!one.ready);
  CHECK(one.reason == "1 of 2 nodes, waiting for 1 more");
  CHECK(!one.retry_at.has_value());
  const QuorumVerdict elastic = DecideQuorum(At(0s), First(), Ready(1), TestPolicy(3, 8));
  CHECK(elastic.reason == "1 node (min 3, max 8), waiting for 2 more");
}

TEST_CASE("quorum: where the user named no meeting place, those that wait hear which it is") {
  Policy policy = TestPolicy(2, 2);
  policy.meeting_place = "127.0.0.1:29500";
  CHECK(DecideQuorum(At(0s), First(), Ready(1), policy).reason ==
        "1 of 2 nodes, waiting for 1 more at 127.0.0.1:29500");
}

TEST_CASE("quorum: a late join does not extend last call") {
  const Policy policy = TestPolicy(2, 4);
  const QuorumVerdict two = DecideQuorum(At(1s), First(At(1s)), Ready(2), policy);
  CHECK(!two.ready);
  CHECK(two.reason == "2 nodes (min 2, max 4), last call");
  CHECK(two.is_countdown);
  CHECK(two.retry_at == At(31s));
  const QuorumVerdict three = DecideQuorum(At(29s), First(At(1s)), Ready(3), policy);
  CHECK(!three.ready);
  CHECK(three.retry_at == At(31s));
  const QuorumVerdict over = DecideQuorum(At(31s), First(At(1s)), Ready(3), policy);
  CHECK(over.ready);
  CHECK(over.reason == "3 nodes (min 2, max 4), last call over");
}

TEST_CASE("quorum: the passing of last call is no news, a join is") {
  const Policy policy = TestPolicy(2, 4);
  const FormingRound round = First(At(0s));
  CHECK(DecideQuorum(At(1s), round, Ready(2), policy).reason ==
        DecideQuorum(At(20s), round, Ready(2), policy).reason);
  CHECK(DecideQuorum(At(1s), round, Ready(2), policy).reason !=
        DecideQuorum(At(1s), round, Ready(3), policy).reason);
}

TEST_CASE("quorum: a later round is ready as soon as every live node has joined again") {
  const Policy policy = TestPolicy(2, 4);
  Candidates candidates = Ready(2);
  candidates.absent = 1;
  candidates.absent_names = {"c"};
  const QuorumVerdict waiting = DecideQuorum(At(1s), Later(At(0s)), candidates, policy);
  CHECK(!waiting.ready);
  CHECK(waiting.reason == "2 nodes (min 2, max 4), waiting for node c to join again");
  CHECK(waiting.retry_at == At(600s));
  CHECK(waiting.patience_ends == At(600s));
  CHECK(DecideQuorum(At(1s), Later(At(0s)), Ready(2), policy).ready);
  CHECK(!DecideQuorum(At(1s), Later(), Ready(1), policy).ready);
}

TEST_CASE("quorum: a node that never joins again is waited for no longer than join_timeout") {
  const Policy policy = TestPolicy(1, 4);
  Candidates candidates = Ready(1);
  candidates.absent = 1;
  candidates.absent_names = {"c"};
  CHECK(!DecideQuorum(At(599s), Later(At(0s)), candidates, policy).ready);
  CHECK(DecideQuorum(At(600s), Later(At(0s)), candidates, policy).ready);
}

TEST_CASE("quorum: who waits hears when the last of the absent is not waited for any more") {
  Membership members(10s);
  for (const char* name : {"a", "b", "c"}) {
    members.Admit(Join(TestPolicy(1, 1), name, static_cast<uint64_t>(name[0])), At(0s));
  }
  for (const char* name : {"b", "c"}) members.Find(NodeId{name})->standing = Standing::kStopping;
  members.Find(NodeId{"b"})->awaited_until = At(10s);
  const Policy policy = TestPolicy(1, 4);
  const auto patience = [&](Duration now) {
    return DecideQuorum(At(now), Later(At(0s)), CountCandidates(members, At(now)), policy)
        .patience_ends;
  };
  CHECK(CountCandidates(members, At(0s)).recount_at == At(10s));
  CHECK(patience(0s) == At(600s));
  members.Find(NodeId{"c"})->awaited_until = At(12s);
  CHECK(patience(0s) == At(12s));
  CHECK(patience(11s) == At(12s));
  CHECK(!patience(12s).has_value());
}

TEST_CASE("quorum: the reason names three absent nodes and counts the others") {
  Candidates candidates = Ready(1);
  candidates.absent = 7;
  candidates.absent_names = {"b", "c", "d"};
  CHECK(DecideQuorum(At(0s), Later(), candidates, TestPolicy(8, 8)).reason ==
        "1 of 8 nodes, waiting for nodes b, c, d and 4 more to join again");
}

TEST_CASE("quorum: with given ranks all of them are needed, whatever the minimum") {
  Policy policy = TestPolicy(1, 3);
  policy.is_static = true;
  CHECK(NodesNeeded(policy) == 3);
  CHECK(!DecideQuorum(At(999s), First(At(0s)), Ready(2), policy).ready);
  CHECK(DecideQuorum(At(0s), First(At(0s)), Ready(3), policy).ready);
}

TEST_CASE("quorum: only connected nodes that wait are ready") {
  Membership members(10s);
  for (const char* name : {"a", "b", "c", "d"}) {
    members.Admit(Join(TestPolicy(1, 1), name, static_cast<uint64_t>(name[0])), At(0s));
  }
  members.Find(NodeId{"b"})->standing = Standing::kStopping;
  members.BreakSession({SessionId{'d'}}, At(0s));
  const Candidates candidates = CountCandidates(members, At(0s));
  CHECK(candidates.ready == 2);
  CHECK(candidates.absent == 2);
  CHECK(candidates.absent_names == std::vector<std::string>{"b", "d"});
}

}  // namespace
}  // namespace ddprun::rendezvous
