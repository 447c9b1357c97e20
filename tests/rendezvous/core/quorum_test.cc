#include "rendezvous/core/quorum.h"

#include <doctest/doctest.h>

#include "tests/rendezvous/core/builders.h"

namespace ddprun::rendezvous {
namespace {

using namespace testing;  // NOLINT: builders

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
  members.BreakSession(SessionId{'d'}, At(0s));
  const Candidates candidates = CountCandidates(members, At(0s), Round{});
  CHECK(candidates.ready == 2);
  CHECK(candidates.absent == 2);
  CHECK(candidates.absent_names == std::vector<std::string>{"b", "d"});
}

}  // namespace
}  // namespace ddprun::rendezvous
