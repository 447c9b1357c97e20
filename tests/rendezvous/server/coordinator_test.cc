#include "rendezvous/server/coordinator.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kPatience = EventLog::kPatience;

std::unique_ptr<Coordinator> StartLocal(Policy policy) {
  Coordinator::Options options;
  options.policy = std::move(policy);
  auto coordinator = Coordinator::Start(std::move(options));
  REQUIRE(coordinator.ok());
  return *std::move(coordinator);
}

TEST_CASE("coordinator: two agents of this process form a round and finish it") {
  EventLog log_a;
  EventLog log_b;
  auto coordinator = StartLocal(TestPolicy(2, 2));
  auto a = coordinator->AttachLocal(log_a.handler());
  auto b = coordinator->AttachLocal(log_b.handler());
  a->Join(TestNode("a", 4001));
  const auto waiting = log_a.Await<Waiting>();
  INFO(log_a.Text());
  REQUIRE(waiting);
  CHECK(waiting->reason == "1 of 2 nodes, waiting for 1 more");
  CHECK(waiting->deadline.has_value());
  b->Join(TestNode("b", 4002));
  const auto assigned_a = log_a.Await<Assigned>();
  const auto assigned_b = log_b.Await<Assigned>();
  REQUIRE(assigned_a);
  REQUIRE(assigned_b);
  CHECK(assigned_a->assignment.round == assigned_b->assignment.round);
  CHECK(assigned_a->assignment.master_addr == "127.0.0.1");
  CHECK(assigned_a->assignment.node_rank + assigned_b->assignment.node_rank == 1);
  const Round round = assigned_a->assignment.round;
  a->ReportFirstSuccess(round, 0, SteadyNow());
  a->ReportSucceeded(round);
  b->ReportSucceeded(round);
  const auto verdict = log_a.Await<Concluded>();
  REQUIRE(verdict);
  CHECK(verdict->verdict.exit_code == 0);
  REQUIRE(log_b.Await<Concluded>());
  CHECK_FALSE(coordinator->WaitFinished(Duration{0}));  // nobody has acknowledged
  a->AckVerdict();
  b->AckVerdict();
  CHECK(coordinator->WaitFinished(kPatience));
}

TEST_CASE("coordinator: each event and action is a line for the log") {
  std::vector<std::string> lines;  // of the coordinator's thread until it has been stopped
  EventLog log;
  Coordinator::Options options;
  options.policy = TestPolicy(1, 1);
  options.log_step = [&](const std::string& line) { lines.push_back(line); };
  auto coordinator = Coordinator::Start(std::move(options));
  REQUIRE(coordinator.ok());
  auto client = (*coordinator)->AttachLocal(log.handler());
  client->Join(TestNode("a", 4001));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  client->ReportSucceeded(assigned->assignment.round);
  REQUIRE(log.Await<Concluded>());
  client->AckVerdict();
  REQUIRE((*coordinator)->WaitFinished(kPatience));
  REQUIRE((*coordinator)->verdict());
  CHECK((*coordinator)->verdict()->exit_code == 0);
  (*coordinator)->Stop();
  const std::vector<std::string> expected = {
      "hears join session=1 stamp=0.0 node=a ",
      "says record epoch=",
      "says session=1: assign ",
      "hears succeeded session=1 ",
      "says record epoch=",
      "hears recorded",
      "says session=1: conclude ",
      "hears acked session=1 ",
      "says finish",
  };
  REQUIRE(lines.size() == expected.size());
  for (size_t i = 0; i < lines.size(); ++i)
    CHECK_MESSAGE(lines[i].rfind(expected[i], 0) == 0, lines[i]);
}

TEST_CASE("coordinator: the job's file goes with the job, and stays when it may go on") {
  const testing::TempDir dir;
  const std::string run = dir.File("run");
  const auto start = [&run] {
    auto started = Coordinator::Start({.policy = TestPolicy(1, 1), .run_dir = run});
    REQUIRE(started.ok());
    return *std::move(started);
  };
  start()->Stop();
  CHECK(std::filesystem::exists(run + "/job"));
  EventLog log;
  auto coordinator = start();
  auto client = coordinator->AttachLocal(log.handler());
  client->Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  client->ReportSucceeded(assigned->assignment.round);
  REQUIRE(log.Await<Concluded>());
  client->AckVerdict();
  REQUIRE(coordinator->WaitFinished(kPatience));
  CHECK(std::filesystem::exists(run + "/job"));
  coordinator->Stop();
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE("coordinator: a failure without budget ends the job with the worker's code") {
  EventLog log;
  Policy policy = TestPolicy(1, 1);
  policy.first_cause_window = std::chrono::milliseconds(1);
  auto coordinator = StartLocal(policy);
  auto client = coordinator->AttachLocal(log.handler());
  client->Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  client->ReportFailed(assigned->assignment.round, TestFailure("a", 7), SteadyNow());
  CHECK(log.Await<Drained>());
  const auto verdict = log.Await<Concluded>();
  INFO(log.Text());
  REQUIRE(verdict);
  CHECK(verdict->verdict.exit_code == 7);
}

TEST_CASE("coordinator: no event comes after a client is destroyed or stopped") {
  EventLog log;
  auto coordinator = StartLocal(TestPolicy(1, 2));
  auto client = coordinator->AttachLocal(log.handler());
  client->Join(TestNode("a"));
  REQUIRE(log.Await<Waiting>());
  client->FlushAndStop(kPatience);
  const size_t before = log.Count();
  EventLog other;
  auto second = coordinator->AttachLocal(other.handler());
  second->Join(TestNode("b"));
  REQUIRE(other.Await<Waiting>());
  CHECK(log.Count() == before);
}

TEST_CASE("coordinator: a client outlives its coordinator and can still be used") {
  EventLog log;
  auto coordinator = StartLocal(TestPolicy(1, 1));
  auto client = coordinator->AttachLocal(log.handler());
  coordinator.reset();
  client->Join(TestNode("a"));
  client->FlushAndStop(kPatience);
  CHECK(log.Count() == 0);
}

}  // namespace
}  // namespace ddprun::rendezvous
