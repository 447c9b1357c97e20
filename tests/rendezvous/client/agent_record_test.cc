#include "rendezvous/client/agent_record.h"

#include <doctest/doctest.h>

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kNow{seconds(1000)};
constexpr JobInstance kInstance{1, 2};

constexpr JobInstance kOther{3, 4};

Assign MakeAssign(uint64_t epoch, uint64_t round, const JobInstance& instance = kInstance) {
  Assignment assignment;
  assignment.instance = instance;
  assignment.epoch = Epoch{epoch};
  assignment.round = Round{round};
  return Assign{{}, assignment};
}

AgentRecord AssignedToRound1() {
  AgentRecord record{Policy{}};
  record.Join(NodeInfo{});
  REQUIRE(record.NextToSay(kNow));
  REQUIRE(record.Hear(kInstance, MakeAssign(5, 1)));
  return record;
}

TEST_CASE("record: a new session says the join and the facts of the round again") {
  AgentRecord record = AssignedToRound1();
  record.Report(Round{1}, WorkersFailed{}, kNow);
  REQUIRE(record.NextToSay(kNow));
  CHECK_FALSE(record.NextToSay(kNow));
  record.StartSession();
  const auto join = record.NextToSay(kNow);
  REQUIRE(join);
  CHECK(std::get<NodeJoined>(*join).held.has_value());
  CHECK(std::get<NodeJoined>(*join).stamp.round == Round{1});
  const auto failed = record.NextToSay(kNow + seconds(3));
  REQUIRE(failed);
  CHECK(std::get<WorkersFailed>(*failed).age == seconds(3));
  CHECK_FALSE(record.has_unsaid());
}

TEST_CASE("record: a failure that nobody answered is said again in front of the next join") {
  AgentRecord record = AssignedToRound1();
  record.Report(Round{1}, WorkersFailed{}, kNow);
  record.Join(
      NodeInfo{});  // its workers are gone, and no drain has been heard: the session is down
  SUBCASE("a new session hears of it under the old place") {
    record.StartSession();
    const auto old_join = record.NextToSay(kNow);
    REQUIRE(old_join);
    CHECK(std::get<NodeJoined>(*old_join).held.has_value());
    const auto failed = record.NextToSay(kNow);
    REQUIRE(failed);
    CHECK(std::get<WorkersFailed>(*failed).stamp.round == Round{1});
    const auto join = record.NextToSay(kNow);
    REQUIRE(join);
    CHECK_FALSE(std::get<NodeJoined>(*join).held.has_value());
    CHECK_FALSE(record.has_unsaid());
  }
  SUBCASE("a drain is the answer") {
    const auto drained = record.Hear(kInstance, Drain{{}, Epoch{5}, Round{1}, "failed", true});
    REQUIRE(drained);  // late, but the agent has the reason from nowhere else
    CHECK(std::get<Drained>(*drained).reason == "failed");
    CHECK(std::get<Drained>(*drained).is_cause_wanted);
    CHECK_FALSE(record.Hear(kInstance, Drain{{}, Epoch{5}, Round{1}, "failed"}));
    record.StartSession();
    const auto join = record.NextToSay(kNow);
    REQUIRE(join);
    CHECK_FALSE(std::get<NodeJoined>(*join).held.has_value());
    CHECK_FALSE(record.has_unsaid());
  }
  SUBCASE("so is a place in the next round") {
    CHECK(record.Hear(kInstance, MakeAssign(5, 2)));
    record.StartSession();
    const auto join = record.NextToSay(kNow);
    REQUIRE(join);
    CHECK(std::get<NodeJoined>(*join).held.has_value());
    CHECK(std::get<NodeJoined>(*join).stamp.round == Round{2});
    CHECK_FALSE(record.has_unsaid());
  }
}

TEST_CASE("record: a node that waits for a place tells the restarts of its last round") {
  AgentRecord record{Policy{}};
  record.Join(NodeInfo{});
  const auto first = record.NextToSay(kNow);
  REQUIRE(first);
  CHECK(std::get<NodeJoined>(*first).max_restarts == 0);
  Assign assign = MakeAssign(5, 1);
  assign.assignment.restart_count = 2;
  assign.assignment.max_restarts = 3;
  REQUIRE(record.Hear(kInstance, assign));
  record.Join(NodeInfo{});
  const auto next = record.NextToSay(kNow);
  REQUIRE(next);
  CHECK_FALSE(std::get<NodeJoined>(*next).held.has_value());
  CHECK(std::get<NodeJoined>(*next).restart_count == 2);
  CHECK(std::get<NodeJoined>(*next).max_restarts == 3);
  // Another job's, which the node waits for since, are none of its business.
  record.StartSession();
  record.Hear(JobInstance{8, 8}, TellWaiting{.session = {}, .reason = "1 of 2", .deadline = {}});
  record.StartSession();
  const auto other = record.NextToSay(kNow);
  REQUIRE(other);
  CHECK(std::get<NodeJoined>(*other).max_restarts == 0);
}

TEST_CASE("record: nobody adopts what is not greater than what it has seen") {
  AgentRecord record = AssignedToRound1();
  record.Join(NodeInfo{});
  CHECK_FALSE(record.Hear(kInstance, MakeAssign(5, 1)));
  CHECK_FALSE(record.Hear(kInstance, MakeAssign(4, 9)));
  CHECK(record.Hear(kInstance, MakeAssign(5, 2)));
  CHECK(record.stamp().round == Round{2});
  CHECK_FALSE(record.Hear(kInstance, MakeAssign(5, 3)));  // not asked for
}

TEST_CASE("record: facts of another round are not said") {
  AgentRecord record = AssignedToRound1();
  record.Report(Round{2}, WorkersSucceeded{}, kNow);
  CHECK_FALSE(record.has_unsaid());
  record.Join(NodeInfo{});
  record.Report(Round{1}, WorkersSucceeded{}, kNow);
  REQUIRE(record.NextToSay(kNow));
  CHECK_FALSE(record.has_unsaid());
}

TEST_CASE("record: a drain of the round is heard once, an older one never") {
  AgentRecord record = AssignedToRound1();
  CHECK_FALSE(record.Hear(kInstance, Drain{{}, Epoch{5}, Round{0}, "old"}));
  CHECK(record.Hear(kInstance, Drain{{}, Epoch{5}, Round{1}, "failed"}));
  CHECK_FALSE(record.Hear(kInstance, Drain{{}, Epoch{5}, Round{1}, "failed"}));
}

TEST_CASE("record: a waiting reason is heard with its deadline, until there is a place") {
  AgentRecord record{Policy{}};
  const TellWaiting told{{}, "1 of 2 nodes, waiting for 1 more", kNow + seconds(580)};
  CHECK_FALSE(record.Hear(kInstance, told));
  record.Join(NodeInfo{});
  const auto heard = record.Hear(kInstance, told);
  REQUIRE(heard);
  CHECK(std::get<Waiting>(*heard).reason == "1 of 2 nodes, waiting for 1 more");
  CHECK(std::get<Waiting>(*heard).deadline == kNow + seconds(580));
  REQUIRE(record.Hear(kInstance, MakeAssign(5, 1)));
  CHECK_FALSE(record.Hear(kInstance, told));
}

TEST_CASE("record: nothing is heard after the verdict, which can be acknowledged") {
  AgentRecord record = AssignedToRound1();
  CHECK(record.Hear(kInstance, Conclude{{}, Epoch{5}, Round{1}, Verdict{}}));
  CHECK(record.is_over());
  CHECK_FALSE(record.Hear(kInstance, Conclude{{}, Epoch{5}, Round{1}, Verdict{}}));
  record.AckVerdict();
  CHECK(std::holds_alternative<VerdictAcked>(*record.NextToSay(kNow)));
}

TEST_CASE("record: epochs and rounds count within one job only") {
  AgentRecord record = AssignedToRound1();
  SUBCASE("a node that runs hears nothing of another job") {
    CHECK_FALSE(record.Hear(kOther, MakeAssign(9, 9, kOther)));
    CHECK_FALSE(record.Hear(kOther, Drain{{}, Epoch{5}, Round{1}, "not yours"}));
    CHECK_FALSE(record.Hear(kOther, Conclude{{}, Epoch{9}, Round{9}, {}}));
    CHECK_FALSE(record.is_over());
    CHECK(record.is_assigned());
  }
  SUBCASE("one that waits takes a place in it, whatever its number") {
    record.Join(NodeInfo{});
    REQUIRE(record.Hear(kOther, TellWaiting{{}, "1 of 2 nodes", {}}));
    CHECK(record.stamp().instance == kOther);
    CHECK(record.stamp().round == Round{});
    REQUIRE(record.Hear(kOther, MakeAssign(1, 1, kOther)));
    CHECK(record.stamp().epoch == Epoch{1});
    CHECK_FALSE(record.Hear(kInstance, Drain{{}, Epoch{5}, Round{1}, "of the past"}));
    REQUIRE(record.Hear(kOther, Drain{{}, Epoch{1}, Round{1}, "of this one"}));
  }
  SUBCASE("its verdict is adopted by one that waits") {
    record.Join(NodeInfo{});
    REQUIRE(record.Hear(kOther, Conclude{{}, Epoch{1}, Round{1}, {}}));
    CHECK(record.is_over());
  }
}

TEST_CASE("record: who refuses a node that runs is not its coordinator") {
  for (const Refusal kind : {Refusal::kOtherJob, Refusal::kJobOver}) {
    AgentRecord record = AssignedToRound1();
    CHECK_FALSE(record.Hear(kOther, Refuse{{}, kind, "the job is another"}));
    CHECK_FALSE(record.is_over());
    CHECK(record.is_assigned());
  }
}

TEST_CASE("record: a node that waits outlives the end of another job, without its old facts") {
  AgentRecord record = AssignedToRound1();
  record.Report(Round{1}, WorkersFailed{}, kNow);
  record.Join(NodeInfo{});
  CHECK_FALSE(record.Hear(kOther, Refuse{{}, Refusal::kJobOver, "the job \"j\" is ending"}));
  CHECK_FALSE(record.is_over());
  record.StartSession();
  const auto join = record.NextToSay(kNow);
  REQUIRE(join);
  CHECK_FALSE(std::get<NodeJoined>(*join).held.has_value());
  CHECK_FALSE(record.has_unsaid());
}

TEST_CASE("record: a final refusal is the end") {
  AgentRecord record = AssignedToRound1();
  const auto event = record.Hear(kInstance, Refuse{{}, Refusal::kFinal, "no"});
  REQUIRE(event);
  CHECK(std::get<RendezvousFailed>(*event).message == "no");
  CHECK(record.is_over());
}

// The kinds of all that is to be said: "join stop".
std::string SayAll(AgentRecord& record) {
  std::string said;
  while (const std::optional<Event> event = record.NextToSay(kNow)) {
    const auto* stop = std::get_if<StopOrdered>(&*event);
    said += (said.empty() ? "" : " ") +
            std::string(std::holds_alternative<NodeJoined>(*event) ? "join"
                        : stop == nullptr                          ? "fact"
                        : stop->how == StopHow::kAfterStep         ? "stop-after-step"
                                                                   : "stop");
  }
  CHECK_FALSE(record.has_unsaid());
  return said;
}

TEST_CASE("record: an order to stop is said behind the join, and again in each session") {
  AgentRecord record = AssignedToRound1();
  record.OrderStop(StopHow::kGracefully, "ddprun stop on node a");
  CHECK(record.has_unsaid());
  const auto event = record.NextToSay(kNow);
  REQUIRE(event);
  const auto& order = std::get<StopOrdered>(*event);
  CHECK(order.reason == "ddprun stop on node a");
  CHECK(order.stamp.instance == kInstance);
  CHECK(order.stamp.round == Round{1});
  CHECK(SayAll(record) == "");
  record.StartSession();
  CHECK(SayAll(record) == "join stop");
}

TEST_CASE("record: an order to stop outlives the round in which it was given") {
  AgentRecord record = AssignedToRound1();
  record.OrderStop(StopHow::kAfterStep, "x");
  SUBCASE("it has not been said yet when the node joins again") {
    REQUIRE(record.Hear(kInstance, Drain{{}, Epoch{5}, Round{1}, "failed"}));
    record.Join(NodeInfo{});
    CHECK(SayAll(record) == "join stop-after-step");
    REQUIRE(record.Hear(kInstance, MakeAssign(5, 2)));
    CHECK(SayAll(record) == "");
  }
  SUBCASE("the coordinator is started again, and knows nothing of it") {
    CHECK(SayAll(record) == "stop-after-step");
    record.Join(NodeInfo{});
    record.StartSession();
    CHECK(SayAll(record) == "join stop-after-step");
    REQUIRE(record.Hear(kInstance, MakeAssign(6, 2)));
    record.StartSession();
    CHECK(SayAll(record) == "join stop-after-step");
  }
  SUBCASE("a failure that nobody has answered stands in front of the join") {
    record.Report(Round{1}, WorkersFailed{}, kNow);
    record.Join(NodeInfo{});
    record.StartSession();
    CHECK(SayAll(record) == "join fact join stop-after-step");
  }
}

TEST_CASE(
    "record: orders to stop are kept once, however often they are given; at once goes first") {
  AgentRecord record = AssignedToRound1();
  record.OrderStop(StopHow::kAfterStep, "x");
  record.OrderStop(StopHow::kAfterStep, "x");
  CHECK(SayAll(record) == "stop-after-step");
  for (int i = 0; i < 100; ++i) record.OrderStop(StopHow::kAfterStep, "y");
  CHECK(SayAll(record) == "");
  record.OrderStop(StopHow::kGracefully, "x");
  record.OrderStop(StopHow::kAfterStep, "x");
  CHECK(SayAll(record) == "stop");
  record.OrderStop(StopHow::kGracefully, "x");
  record.StartSession();
  CHECK(SayAll(record) == "join stop");
}

TEST_CASE("record: an order to stop is for this job alone") {
  AgentRecord nowhere{Policy{}};
  nowhere.OrderStop(StopHow::kGracefully, "x");  // before any join there is nobody to tell
  CHECK_FALSE(nowhere.has_unsaid());
  AgentRecord record = AssignedToRound1();
  record.OrderStop(StopHow::kGracefully, "x");
  CHECK_FALSE(record.Hear(kOther, Refuse{{}, Refusal::kOtherJob, "another job"}));
  record.StartSession();
  CHECK(SayAll(record) == "join");
}

TEST_CASE("record: questions, answers and the wish to stop are heard while the job is not over") {
  AgentRecord record = AssignedToRound1();
  const auto asked = record.Hear(kInstance, AskNode{{}, 7, "status"});
  REQUIRE(asked);
  CHECK(std::get<Asked>(*asked).id == 7);
  CHECK(std::get<Asked>(*asked).body == "status");
  const auto given = record.Hear(kInstance, GiveAnswers{.session = {}, .id = 8, .answers = {}});
  REQUIRE(given);
  CHECK(std::get<Answered>(*given).part.id == 8);
  const auto told = record.Hear(kInstance, TellToStop{{}, "x"});
  REQUIRE(told);
  CHECK(std::get<StopRequested>(*told).reason == "x");
  REQUIRE(record.Hear(kInstance, Conclude{{}, Epoch{5}, Round{1}, Verdict{}}));
  CHECK_FALSE(record.Hear(kInstance, AskNode{{}, 9, "status"}));
}

TEST_CASE("record: a wish to make room is heard of the round that runs here alone") {
  AgentRecord record = AssignedToRound1();
  const auto wish = [](uint64_t epoch, uint64_t round) {
    return TellToStop{.session = {},
                      .reason = "node b joined",
                      .is_to_scale_up = true,
                      .epoch = Epoch{epoch},
                      .round = Round{round}};
  };
  CHECK_FALSE(record.Hear(kInstance, wish(5, 2)));
  CHECK_FALSE(record.Hear(kInstance, wish(4, 1)));
  CHECK_FALSE(record.Hear({kInstance.high, kInstance.low + 1}, wish(5, 1)));
  const auto heard = record.Hear(kInstance, wish(5, 1));
  REQUIRE(heard);
  CHECK(std::get<StopRequested>(*heard).is_to_scale_up);
  record.Join({});
  CHECK_FALSE(record.Hear(kInstance, wish(5, 1)));
}

}  // namespace
}  // namespace ddprun::rendezvous
