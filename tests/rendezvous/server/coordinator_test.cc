#include "rendezvous/server/coordinator.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/server/job_file.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/local_agent.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kPatience = EventLog::kPatience;

// Options::on_finished, waited for.
class End {
 public:
  std::function<void()> handler() {
    return [this] { told_.set_value(); };  // a second call would throw
  }
  bool Await(Duration timeout = kPatience) {
    return end_.wait_for(timeout) == std::future_status::ready;
  }

 private:
  std::promise<void> told_;
  std::future<void> end_ = told_.get_future();
};

std::unique_ptr<Coordinator> StartLocal(Policy policy, End* end = nullptr) {
  Coordinator::Options options;
  options.policy = std::move(policy);
  if (end != nullptr) options.on_finished = end->handler();
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  REQUIRE(coordinator.ok());
  return *std::move(coordinator);
}

TEST_CASE("coordinator: two agents of this process form a round and finish it") {
  EventLog log_a;
  EventLog log_b;
  End end;
  auto coordinator = StartLocal(TestPolicy(2, 2), &end);
  LocalAgent a(*coordinator, TestPolicy(2, 2), log_a);
  LocalAgent b(*coordinator, TestPolicy(2, 2), log_b);
  a.Join(TestNode("a", 4001));
  const auto waiting = log_a.Await<Waiting>();
  INFO(log_a.Text());
  REQUIRE(waiting);
  CHECK(waiting->reason == "1 of 2 nodes, waiting for 1 more");
  CHECK(waiting->deadline.has_value());
  b.Join(TestNode("b", 4002));
  const auto assigned_a = log_a.Await<Assigned>();
  const auto assigned_b = log_b.Await<Assigned>();
  REQUIRE(assigned_a);
  REQUIRE(assigned_b);
  CHECK(assigned_a->assignment.round == assigned_b->assignment.round);
  CHECK(assigned_a->assignment.master_addr == "127.0.0.1");
  CHECK(assigned_a->assignment.node_rank + assigned_b->assignment.node_rank == 1);
  const Round round = assigned_a->assignment.round;
  a.ReportFirstSuccess(round, 0);
  a.ReportSucceeded(round);
  b.ReportSucceeded(round);
  const auto verdict = log_a.Await<Concluded>();
  REQUIRE(verdict);
  CHECK(verdict->verdict.exit_code == 0);
  REQUIRE(log_b.Await<Concluded>());
  CHECK_FALSE(end.Await(Duration{0}));  // nobody has acknowledged
  a.AckVerdict();
  b.AckVerdict();
  CHECK(end.Await());
}

TEST_CASE("coordinator: each event and action is a line for the log") {
  std::vector<std::string> lines;  // of the coordinator's thread until it has been stopped
  EventLog log;
  End end;
  Coordinator::Options options;
  options.policy = TestPolicy(1, 1);
  options.on_finished = end.handler();
  options.log_step = [&](const std::string& line) { lines.push_back(line); };
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  REQUIRE(coordinator.ok());
  LocalAgent client(**coordinator, TestPolicy(1, 1), log);
  client.Join(TestNode("a", 4001));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  client.ReportSucceeded(assigned->assignment.round);
  REQUIRE(log.Await<Concluded>());
  client.AckVerdict();
  REQUIRE(end.Await());
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

TEST_CASE("coordinator: the job's file stays where a round may go on, else it goes") {
  const testing::TempDir dir;
  const std::string run = dir.File("run");
  const auto start = [&run] {
    auto started = Coordinator::Start({.policy = TestPolicy(1, 1), .run_dir = run}, SteadyClock());
    REQUIRE(started.ok());
    return *std::move(started);
  };
  start()->Stop();
  CHECK_FALSE(std::filesystem::exists(run));  // no round began: there is nothing to go on with
  EventLog log;
  auto coordinator = start();
  std::optional<LocalAgent> client(std::in_place, *coordinator, TestPolicy(1, 1), log);
  client->Join(TestNode("a"));
  REQUIRE(log.Await<Assigned>());
  client.reset();
  coordinator->Stop();
  CHECK(std::filesystem::exists(run + "/left"));
}

TEST_CASE("coordinator: one that finds how the job had ended knows it from the start") {
  const testing::TempDir dir;
  const std::string run = dir.File("run");
  const Verdict end{.exit_code = 7, .reason = "rank 3 failed", .first_failure = std::nullopt};
  REQUIRE(WriteJob(run, {.instance = {1, 2}, .epoch = Epoch{4}, .verdict = end}).ok());
  auto started = Coordinator::Start({.policy = TestPolicy(1, 1), .run_dir = run}, SteadyClock());
  REQUIRE(started.ok());
  CHECK((*started)->verdict() == end);
  (*started)->Stop();
  CHECK(std::filesystem::exists(run + "/left"));  // its nodes have not heard it from this one
}

TEST_CASE("coordinator: the job's file goes with the job") {
  const testing::TempDir dir;
  const std::string run = dir.File("run");
  EventLog log;
  End end;
  auto started = Coordinator::Start(
      {.policy = TestPolicy(1, 1), .run_dir = run, .on_finished = end.handler()}, SteadyClock());
  REQUIRE(started.ok());
  const std::unique_ptr<Coordinator> coordinator = *std::move(started);
  LocalAgent client(*coordinator, TestPolicy(1, 1), log);
  client.Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  client.ReportSucceeded(assigned->assignment.round);
  REQUIRE(log.Await<Concluded>());
  client.AckVerdict();
  REQUIRE(end.Await());
  CHECK(std::filesystem::exists(run + "/job"));
  coordinator->Stop();
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE("coordinator: a failure without budget ends the job with the worker's code") {
  EventLog log;
  Policy policy = TestPolicy(1, 1);
  policy.first_cause_window = std::chrono::milliseconds(1);  // no limit: a delay
  auto coordinator = StartLocal(policy);
  LocalAgent client(*coordinator, TestPolicy(1, 1), log);
  client.Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  client.ReportFailed(assigned->assignment.round, TestFailure("a", 7));
  CHECK(log.Await<Drained>());
  const auto verdict = log.Await<Concluded>();
  INFO(log.Text());
  REQUIRE(verdict);
  CHECK(verdict->verdict.exit_code == 7);
}

TEST_CASE("coordinator: no event comes after a link is gone") {
  EventLog log;
  auto coordinator = StartLocal(TestPolicy(1, 2));
  {
    LocalAgent gone(*coordinator, TestPolicy(1, 2), log);
    gone.Join(TestNode("a"));
    REQUIRE(log.Await<Waiting>());
  }
  const size_t before = log.Count();
  EventLog other;
  LocalAgent second(*coordinator, TestPolicy(1, 2), other);
  second.Join(TestNode("b"));
  REQUIRE(other.Await<Waiting>());
  CHECK(log.Count() == before);
}

TEST_CASE("coordinator: a link outlives its coordinator and can still be used") {
  EventLog log;
  auto coordinator = StartLocal(TestPolicy(1, 1));
  LocalAgent client(*coordinator, TestPolicy(1, 1), log);
  coordinator.reset();
  client.Join(TestNode("a"));
  CHECK(log.Count() == 0);
}

TEST_CASE("coordinator: without a policy the first node gives it, and its verdict the exit code") {
  EventLog log_a;
  EventLog log_b;
  End end;
  Coordinator::Options options;
  options.is_apart = true;
  options.on_finished = end.handler();
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  REQUIRE(coordinator.ok());
  Policy policy = TestPolicy(2, 2);
  policy.first_cause_window = std::chrono::milliseconds(1);  // no limit: a delay
  LocalAgent a(**coordinator, policy, log_a);
  LocalAgent b(**coordinator, policy, log_b);
  a.Join(TestNode("a"));
  b.Join(TestNode("b"));
  const auto assigned = log_a.Await<Assigned>();
  REQUIRE_MESSAGE(assigned, log_a.Text());
  REQUIRE(log_b.Await<Assigned>());
  CHECK_FALSE(assigned->assignment.coordinator_is_member);
  a.ReportFailed(assigned->assignment.round, TestFailure("a", 7));
  REQUIRE_MESSAGE(log_a.Await<Concluded>(), log_a.Text());
  REQUIRE(log_b.Await<Concluded>());
  a.AckVerdict();
  b.AckVerdict();
  REQUIRE(end.Await());
  CHECK((*coordinator)->exit_code() == 7);
  (*coordinator)->Stop();
}

TEST_CASE("coordinator: a job that was given up ends with the rendezvous' code") {
  EventLog log;
  End end;
  Policy policy = TestPolicy(2, 2);
  policy.join_timeout = std::chrono::milliseconds(10);  // lower bound: the other never comes
  auto coordinator = StartLocal(policy, &end);
  LocalAgent a(*coordinator, policy, log);
  a.Join(TestNode("a"));
  REQUIRE_MESSAGE(log.Await<RendezvousFailed>(), log.Text());
  REQUIRE(end.Await());
  CHECK(coordinator->exit_code() == 121);
}

}  // namespace
}  // namespace ddprun::rendezvous
