#include "rendezvous/core/rendezvous_machine.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/machine_state.h"
#include "tests/rendezvous/core/builders.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using namespace testing;  // NOLINT: builders

// Each join would else look at all of them: 100,000 take a second instead of minutes.
TEST_CASE("machine: of thousands that join at once nobody waits 100 ms, and few looks are taken") {
  constexpr uint64_t kNodes = 3000;
  const Policy policy = TestPolicy(kNodes, kNodes);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  size_t told = 0, assigned = 0;
  const auto count = [&](const std::vector<Action>& actions) {
    told += Only<TellWaiting>(actions).size();
    assigned += Only<Assign>(actions).size();
  };
  for (uint64_t i = 1; i <= kNodes; ++i) {
    count(machine.Step(At(500ms), Join(policy, "n" + std::to_string(i), i)));
  }
  CHECK(told <= 1001);  // one by one as long as they are few
  const std::optional<TimePoint> next = machine.NextDeadline();
  REQUIRE(next.has_value());
  CHECK(*next <= At(600ms));
  count(machine.Step(*next, TimePassed{}));
  CHECK(assigned == kNodes);
}

// The usual failure at size: a node dies and its peers fail of it. Until it is lost, the round
// drains while all others beat.
TEST_CASE("machine: while a suspect is awaited no heartbeat costs a look at all nodes") {
  constexpr uint64_t kNodes = 2000;
  Policy policy = TestPolicy(kNodes, kNodes);
  policy.max_restarts = 1;
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  std::vector<Assign> places;
  for (uint64_t i = 1; i <= kNodes; ++i) {
    machine.Step(At(0s), Join(policy, "n" + std::to_string(i), i));
  }
  for (auto at = 0ms; places.empty(); at += 10ms) {
    places = Only<Assign>(machine.Step(At(at), TimePassed{}));
  }
  const auto stamp = [&](uint64_t session) {
    return Stamp{SessionId{session}, Epoch{1}, Round{1}, kTestJob};
  };
  machine.Step(At(2s), SessionBroken{SessionId{kNodes}});
  WorkersFailed failed{.stamp = stamp(places[0].session.value), .report = {}, .age = 5ms};
  failed.report.rank = places[0].assignment.first_rank;
  failed.report.message = "exit code 1";
  REQUIRE(Only<Drain>(machine.Step(At(2001ms), failed)).size() == kNodes - 1);
  const State& state = MachineInspector::Look(machine);
  REQUIRE(state.phase == Phase::kDraining);
  const uint64_t before = state.reviews;
  const auto beat = [&](int second) {
    for (uint64_t i = 1; i < kNodes; ++i) {
      machine.Step(At(std::chrono::seconds(second) + std::chrono::microseconds(400 * i)),
                   HeartbeatReceived{stamp(i)});
    }
  };
  for (int second = 3; second < 9; ++second) beat(second);
  CHECK(state.phase == Phase::kDraining);
  CHECK(state.reviews - before <= 12);
  beat(9);
  beat(10);  // the suspect's time is over, and it is the cause
  CHECK(state.phase == Phase::kOpen);
  CHECK(state.drain_cause == DrainCause::kLoss);
}

TEST_CASE("machine: the next round names the lost node, and not what failed of its loss") {
  Policy policy = TestPolicy(2, 2);
  policy.max_restarts = 1;
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", 1));
  const auto first = Only<Assign>(machine.Step(At(0s), Join(policy, "b", 2)));
  REQUIRE(first.size() == 2);
  CHECK(first[0].assignment.restart_reason == "");
  machine.Step(At(1s), SessionBroken{SessionId{2}});
  const Stamp stamp{SessionId{1}, Epoch{1}, Round{1}, kTestJob};
  WorkersFailed failed{.stamp = stamp, .report = {}, .age = 5ms};
  failed.report.message = "exit code 1";
  CHECK(Only<Drain>(machine.Step(At(1100ms), failed)).size() == 1);
  NodeJoined again = Join(policy, "a", 1);
  again.stamp = stamp;
  machine.Step(At(1200ms), again);
  for (auto at = 2s; at < 12s; at += 1s) machine.Step(At(at), HeartbeatReceived{stamp});
  const auto second = Only<Assign>(machine.Step(At(12s), Join(policy, "c", 3)));
  REQUIRE(second.size() == 2);
  CHECK(second[0].assignment.restart_count == 0);
  for (const Assign& assign : second) {
    CHECK(assign.assignment.restart_reason.find("node b is lost") == 0);
  }
}

// Node "a" of this very process and nodes elsewhere, which run a round from 0 s on.
std::unique_ptr<RendezvousMachine> ElectedJob(int nodes_elsewhere) {
  const Policy policy = TestPolicy(1, nodes_elsewhere + 1);
  auto machine = std::make_unique<RendezvousMachine>(policy, FirstStart(), At(0s), Election{});
  NodeJoined own = Join(policy, "a", 1);
  own.source_addr = own.accepted_addr = "";
  machine->Step(At(0s), own);
  for (int i = 0; i < nodes_elsewhere; ++i) {
    machine->Step(At(0s), Join(policy, std::string(1, static_cast<char>('b' + i)),
                               static_cast<uint64_t>(i) + 2));
  }
  REQUIRE(machine->current().round == Round{1});
  return machine;
}

// Second by second, with beats of these sessions. What the machine did.
std::vector<Action> BeatUntil(RendezvousMachine& machine, Duration from, Duration until,
                              const std::vector<uint64_t>& sessions) {
  std::vector<Action> all;
  for (Duration at = from; at <= until; at += 1s) {
    for (const uint64_t session : sessions) {
      const Stamp stamp{SessionId{session}, Epoch{1}, Round{1}, kTestJob};
      for (Action& action : machine.Step(At(at), HeartbeatReceived{stamp})) {
        all.push_back(std::move(action));
      }
    }
  }
  return all;
}

TEST_CASE(
    "machine: an elected one that hears none of two nodes elsewhere resigns and evicts none") {
  const auto machine = ElectedJob(2);
  CHECK(Only<Drain>(BeatUntil(*machine, 1s, 4s, {1})).empty());
  CHECK(machine->resignation() == "");
  CHECK(Only<Drain>(BeatUntil(*machine, 5s, 60s, {1})).empty());
  CHECK(
      machine->resignation() ==
      "its coordinator has heard none of the other nodes for 5 s, and leaves its place to another");
}

TEST_CASE("machine: an elected one that hears one of two nodes elsewhere evicts the other") {
  const auto machine = ElectedJob(2);
  CHECK(Only<Drain>(BeatUntil(*machine, 1s, 12s, {1, 2})).size() == 2);
  CHECK(machine->resignation() == "");
}

TEST_CASE("machine: an elected one goes on without its only node elsewhere") {
  const auto machine = ElectedJob(1);
  CHECK(Only<Drain>(BeatUntil(*machine, 1s, 12s, {1})).size() == 1);
  CHECK(machine->resignation() == "");
}

// Nodes "a", beside which the coordinator of epoch 1 was, "b" and "c" run a round. This is what
// they bring to the next coordinator.
struct TakenOver {
  Policy policy = TestPolicy(1, 3);
  std::vector<NodeJoined> backs;  // of "b" and "c", sessions 2 and 3
  Beginning beginning = FirstStart();

  TakenOver() {
    RendezvousMachine first(policy, FirstStart(), At(0s), Election{});
    NodeJoined own = Join(policy, "a", 1);
    own.source_addr = own.accepted_addr = "";
    first.Step(At(0s), own);
    first.Step(At(0s), Join(policy, "b", 2));
    const auto assigned = Only<Assign>(first.Step(At(0s), Join(policy, "c", 3)));
    REQUIRE(assigned.size() == 3);
    beginning.epoch = Epoch{2};
    beginning.is_remembered = true;
    for (const uint64_t session : {2, 3}) {
      NodeJoined back = Join(policy, session == 2 ? "b" : "c", session);
      back.stamp = {SessionId{session}, Epoch{1}, Round{1}, kTestJob};
      back.held = assigned[session - 1].assignment;
      backs.push_back(back);
    }
  }
};

// "b" comes to the next coordinator 1 s after its start, "c" after 2.5 s. The moment at which the
// round ends.
Duration EndsRoundAt(const Election& election) {
  const TakenOver job;
  RendezvousMachine next(job.policy, job.beginning, At(0s), election);
  REQUIRE(Only<Drain>(next.Step(At(1s), job.backs[0])).empty());
  REQUIRE(Only<Drain>(next.Step(At(2500ms), job.backs[1])).empty());
  for (Duration at = 3s; at < 60s; at += 500ms) {
    for (const uint64_t session : {2, 3}) {
      const Stamp stamp{SessionId{session}, Epoch{1}, Round{1}, kTestJob};
      if (!Only<Drain>(next.Step(At(at), HeartbeatReceived{stamp})).empty()) return at;
    }
  }
  return {};
}

TEST_CASE(
    "machine: the node of a leader whose process is gone is missed for 2 s when all are back") {
  CHECK(EndsRoundAt({.gone_leader = Epoch{1}}) == 4500ms);
  // Its lease was over: it may be cut off. Or it was another leader's round.
  CHECK(EndsRoundAt({}) == 11s);
  CHECK(EndsRoundAt({.gone_leader = Epoch{5}}) == 11s);
}

TEST_CASE("machine: a job is deserted once all nodes of its round have said that they leave") {
  const TakenOver job;
  RendezvousMachine next(job.policy, job.beginning, At(0s), Election{});
  next.Step(At(1s), job.backs[0]);
  SUBCASE("one that leaves before the others are back deserts nothing") {
    next.Step(At(1s), NodeLeft{.stamp = job.backs[0].stamp});
    CHECK_FALSE(next.has_nodes());
    CHECK_FALSE(next.is_deserted());
  }
  SUBCASE("all leave") {
    next.Step(At(1s), job.backs[1]);
    NodeJoined last = Join(job.policy, "a", 1);
    last.stamp = {SessionId{1}, Epoch{1}, Round{1}, kTestJob};
    last.held = job.backs[0].held;
    last.held->node_rank = 0;
    last.held->first_rank = 0;
    next.Step(At(1s), last);
    for (const uint64_t session : {1, 2, 3}) {
      CHECK_FALSE(next.is_deserted());
      const Stamp stamp{SessionId{session}, Epoch{1}, Round{1}, kTestJob};
      next.Step(At(2s), NodeLeft{.stamp = stamp});
    }
    CHECK(next.is_deserted());
  }
}

TEST_CASE("machine: a join of an older session never displaces the newer one") {
  const Policy policy = TestPolicy(2, 2);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", 7));
  const auto late = machine.Step(At(0s), Join(policy, "a", 3));
  REQUIRE(late.size() == 1);
  CHECK(Only<CloseSession>(late).at(0).session == SessionId{3});
  const auto sealed = Only<Assign>(machine.Step(At(1s), Join(policy, "b", 8)));
  REQUIRE(sealed.size() == 2);
  CHECK(sealed[0].session == SessionId{7});
}

TEST_CASE("machine: a node of another protocol is refused by name, whatever the job does") {
  const Policy policy = TestPolicy(2, 2);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", 1));
  NodeJoined other = Join(policy, "b", 2);
  other.node.release = {.protocol = ThisRelease().protocol + 1, .version = "9.0.0"};
  const std::string both = "node b runs ddprun 9.0.0 (protocol 3), the coordinator ddprun ";
  std::vector<TellWaiting> told;
  const auto refused = [&](TimePoint now) {
    const auto actions = machine.Step(now, other);
    CHECK(Only<Drain>(actions).empty());
    told = Only<TellWaiting>(actions);
    const auto refusals = Only<Refuse>(actions);
    REQUIRE(refusals.size() == 1);
    CHECK(refusals[0].message.find(both) == 0);
    CHECK(refusals[0].message == Contains("all nodes need releases of one protocol"));
    return refusals[0].kind;
  };
  CHECK(refused(At(2s)) == Refusal::kFinal);
  REQUIRE(told.size() == 1);  // the node that waits
  CHECK(told[0].reason == Contains("(refused: " + both));
  CHECK(Only<Assign>(machine.Step(At(3s), Join(policy, "c", 3))).size() == 2);
  CHECK(refused(At(4s)) == Refusal::kFinal);
  // Its workers run on: that they are another job's is no reason to end them.
  other.held.emplace();
  CHECK(refused(At(5s)) == Refusal::kOtherJob);
}

TEST_CASE("machine: who leaves an elastic job with the coordinator in it is told of as that") {
  for (const bool is_host : {true, false}) {
    for (const int min_nodes : {1, 2}) {
      CAPTURE(is_host);
      CAPTURE(min_nodes);
      const Policy policy = TestPolicy(min_nodes, 2);
      RendezvousMachine machine(policy, FirstStart(), At(0s));
      NodeJoined first = Join(policy, "a", 1);
      first.node.is_endpoint_node = is_host;
      machine.Step(At(0s), first);
      const auto sealed = Only<Assign>(machine.Step(At(0s), Join(policy, "b", 2)));
      REQUIRE(sealed.size() == 2);
      NodeLeft left{.stamp = first.stamp, .reason = "stopped by SIGTERM"};
      left.stamp.instance = machine.current().instance;
      left.stamp.epoch = machine.current().epoch;
      left.stamp.round = machine.current().round;
      std::string said;
      for (const Action& action : machine.Step(At(1s), left)) {
        if (const auto* drain = std::get_if<Drain>(&action)) said = drain->reason;
      }
      if (min_nodes == 1) CHECK(said == Contains("node a left: stopped by SIGTERM"));
      CHECK((said == Contains("; the coordinator, which is in it, ends soon")) ==
            (is_host && min_nodes == 1));
    }
  }
}

TEST_CASE("machine: a node of another version gets its place where the protocol is the same") {
  const Policy policy = TestPolicy(2, 2);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", 1));
  NodeJoined other = Join(policy, "b", 2);
  other.node.release = {.protocol = ThisRelease().protocol, .version = "0.0.1"};
  REQUIRE(other.node.release.version != ThisRelease().version);
  const auto actions = machine.Step(At(1s), other);
  CHECK(Only<Refuse>(actions).empty());
  const auto assigns = Only<Assign>(actions);
  REQUIRE(assigns.size() == 2);
  CHECK(assigns[1].session == SessionId{2});
  CHECK(assigns[1].assignment.node_rank == 1);
}

TEST_CASE("machine: a session serves one node") {
  const Policy policy = TestPolicy(2, 2);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", 1));
  const auto refused = Only<Refuse>(machine.Step(At(0s), Join(policy, "b", 1)));
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].kind == Refusal::kFinal);
}

TEST_CASE("machine: an epoch that leaves no room for a greater one is refused") {
  const Policy policy = TestPolicy(1, 1);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  NodeJoined join = Join(policy, "a", 1);
  join.stamp.instance = kTestJob;
  join.stamp.epoch = Epoch{UINT64_MAX};
  join.stamp.round = Round{1};
  join.held = Assignment{};
  const auto refused = Only<Refuse>(machine.Step(At(0s), join));
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].kind == Refusal::kFinal);
}

TEST_CASE("machine: restarts of no round are refused and not counted") {
  const Policy policy = TestPolicy(1, 1);
  NodeJoined join = Join(policy, "a", 1);
  join.stamp.instance = kTestJob;
  join.restart_count = join.max_restarts = 1;
  Beginning beginning = FirstStart();
  beginning.epoch = Epoch{2};
  SUBCASE("in a new job") {}
  SUBCASE("of an older coordinator's job") { beginning.is_remembered = true; }
  SUBCASE("more than the round allows") {
    beginning.is_remembered = true;
    join.stamp.epoch = Epoch{1};
    join.stamp.round = Round{1};
    join.restart_count = 2;
  }
  RendezvousMachine machine(policy, beginning, At(0s));
  const auto actions = machine.Step(At(0s), join);
  REQUIRE(Only<Refuse>(actions).size() == 1);
  CHECK(Only<Refuse>(actions)[0].kind == Refusal::kFinal);
  CHECK(Only<Record>(actions).empty());
}

TEST_CASE("machine: restarts that a waiting node tells are kept, as far as the job allows them") {
  Policy policy = TestPolicy(2, 2);
  policy.max_restarts = 3;
  Beginning beginning = FirstStart();
  beginning.epoch = Epoch{2};
  beginning.is_remembered = true;
  NodeJoined join = Join(policy, "a", 1);
  join.stamp.instance = kTestJob;
  join.stamp.epoch = Epoch{1};
  join.stamp.round = Round{2};
  int kept = 0;
  SUBCASE("of the job") { kept = join.restart_count = join.max_restarts = 3; }
  SUBCASE("more than it has") {
    join.restart_count = join.max_restarts = 5;
    kept = 3;
  }
  SUBCASE("given back") {
    policy.limits.budget_period = join.policy.limits.budget_period = 3600s;
    kept = join.restart_count = join.max_restarts = 5;
  }
  RendezvousMachine machine(policy, beginning, At(0s));
  const auto records = Only<Record>(machine.Step(At(0s), join));
  REQUIRE(records.size() == 1);
  CHECK(records[0].restart_count == kept);
}

TEST_CASE("machine: restarts of a newer round count behind a node that still holds an older one") {
  Policy policy = TestPolicy(3, 3);
  policy.max_restarts = 3;
  Beginning beginning = FirstStart();
  beginning.epoch = Epoch{2};
  beginning.is_remembered = true;
  RendezvousMachine machine(policy, beginning, At(0s));
  NodeJoined late = Join(policy, "c", 1);
  late.stamp.instance = kTestJob;
  late.stamp.epoch = Epoch{1};
  late.stamp.round = Round{1};
  late.held = Assignment{.instance = kTestJob, .epoch = Epoch{1}, .round = Round{1}};
  late.held->coordinator_is_member = false;
  late.held->node_count = 3;
  late.held->world_size = 6;
  late.max_restarts = late.held->max_restarts = 3;
  REQUIRE(Only<Refuse>(machine.Step(At(0s), late)).empty());
  NodeJoined newer = Join(policy, "a", 2);
  newer.stamp.instance = kTestJob;
  newer.stamp.epoch = Epoch{1};
  newer.stamp.round = Round{3};
  newer.restart_count = 1;
  newer.max_restarts = 3;
  const auto records = Only<Record>(machine.Step(At(1s), newer));
  REQUIRE(records.size() == 1);
  CHECK(records[0].restart_count == 1);
}

TEST_CASE("machine: it asks to be stepped once a second while there are members, and only then") {
  const Policy policy = TestPolicy(1, 1);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  CHECK(!machine.NextDeadline().has_value());
  machine.Step(At(5s), Join(policy, "a", 1));
  CHECK(machine.NextDeadline() == At(6s));
  machine.Step(At(6s), HeartbeatReceived{Stamp{SessionId{1}, Epoch{1}, Round{1}, kTestJob}});
  CHECK(machine.NextDeadline() == At(7s));
}

TEST_CASE("machine: a storm of joins costs messages in proportion to the nodes") {
  constexpr int kNodes = 1000;
  const Policy policy = TestPolicy(kNodes, kNodes);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  size_t messages = 0;
  for (int i = 1; i <= kNodes; ++i) {
    messages += machine.Step(At(i * 1ms), Join(policy, "n" + std::to_string(i), i)).size();
  }
  messages += machine.Step(At(kNodes * 1ms + 100ms), TimePassed{}).size();
  CHECK(machine.current().round == Round{1});
  // One word and one assignment each, and what was said again at the one-second marks.
  CHECK(messages <= 4 * kNodes);
}

TEST_CASE("machine: thousands that come back to a new coordinator keep their round") {
  constexpr int kNodes = 4096;
  const Policy policy = TestPolicy(kNodes, kNodes);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  Duration at = 1s;
  for (int i = 0; i < kNodes; ++i, at += 4600us) {  // 19 s for all: benchmark-scale.md
    NodeJoined event = Join(policy, "n" + std::to_string(i), static_cast<uint64_t>(i) + 1);
    event.held = Assignment{.instance = JobInstance{9, 9},
                            .epoch = Epoch{1},
                            .round = Round{1},
                            .node_rank = i,
                            .node_count = kNodes,
                            .first_rank = 2 * i,
                            .world_size = 2 * kNodes,
                            .coordinator_is_member = false};
    event.stamp = {event.stamp.session, Epoch{1}, Round{1}, event.held->instance};
    CHECK(Only<Drain>(machine.Step(At(at), event)).empty());
    // Those that are back beat.
    for (int j = i; j >= 0; j -= 500) {
      const Stamp stamp{SessionId{static_cast<uint64_t>(j) + 1}, Epoch{1}, Round{1}, {9, 9}};
      CHECK(Only<Drain>(machine.Step(At(at), HeartbeatReceived{stamp})).empty());
    }
  }
  CHECK(machine.Facts(At(at)).phase == "running");
  CHECK(machine.Facts(At(at)).waiting_for.empty());
}

// Two nodes of a coordinator apart, of which one is dead from the start. When it is lost while the
// coordinator steps at these times, late each time; zero: never.
template <typename Late>
Duration LossBeside(Duration step, Duration last, Late late) {
  RendezvousMachine machine(TestPolicy(1, 2), FirstStart(), At(0s));
  machine.Step(At(0s), Join(TestPolicy(1, 2), "a", 1));
  machine.Step(At(0s), Join(TestPolicy(1, 2), "b", 2));
  for (Duration at = step; at < last; at += step) {
    late(machine, At(at));
    const Stamp stamp{SessionId{2}, Epoch{1}, Round{1}, kTestJob};
    if (!Only<CloseSession>(machine.Step(At(at), HeartbeatReceived{stamp})).empty()) return at;
  }
  return Duration{0};
}

TEST_CASE("machine: a coordinator that is late for ever loses a dead node all the same") {
  SUBCASE("as its queue is long") {
    const Duration lost = LossBeside(
        500ms, 600s, [](RendezvousMachine& machine, TimePoint now) { machine.NoteLag(now, 5s); });
    CHECK(lost >= 30s);
    CHECK(lost <= 45s);
  }
  SUBCASE("as it stands still again and again") {
    const Duration lost = LossBeside(3s, 3600s, [](RendezvousMachine&, TimePoint) {});
    CHECK(lost >= 30s);
    CHECK(lost <= 180s);
  }
  SUBCASE("and one long stop is forgiven whole") {
    CHECK(LossBeside(3600s, 7000s, [](RendezvousMachine&, TimePoint) {}) == 0s);
  }
}

TEST_CASE("machine: a failure from before the round began is not older than the coordinator") {
  const Policy policy = TestPolicy(2, 2);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", 1));
  machine.Step(At(0s), Join(policy, "b", 2));
  WorkersFailed first{
      .stamp = {SessionId{1}, Epoch{1}, Round{1}, kTestJob}, .report = {}, .age = 9999h};
  first.report.exit_code = 3;
  WorkersFailed second{
      .stamp = {SessionId{2}, Epoch{1}, Round{1}, kTestJob}, .report = {}, .age = -5s};
  second.report.exit_code = 4;
  machine.Step(At(1s), first);
  machine.Step(At(1s), second);
  machine.Step(At(2s), TimePassed{});
  const auto ended = Only<Conclude>(machine.Step(At(2s), Recorded{}));
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].verdict.exit_code == 3);
}

}  // namespace
}  // namespace ddprun::rendezvous
