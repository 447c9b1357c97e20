#include "launcher/report/report_file.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/json.h"

namespace ddprun::launcher {
namespace {

using testing::ElementOf;
using testing::Json;

JobRecord::Part PartOf(int workers) {
  JobRecord::Part part{NodeId{"n1"}, "alpha", "train.py"};
  part.config.workers_per_node = workers;
  part.config.run_id = "run7";
  part.config.max_restarts = 3;
  return part;
}

Json Rendered(const JobRecord& record) {
  const std::string text = RenderReportFile(record);
  REQUIRE(text.back() == '\n');
  const auto json = testing::ParseJson(text);
  REQUIRE_MESSAGE(json, text);
  return *json;
}

PrepareWorkers FirstRound() {
  PrepareWorkers start;
  start.assignment.round.value = 1;
  start.assignment.first_rank = 4;
  start.assignment.world_size = 6;
  start.assignment.max_restarts = 5;
  return start;
}

rendezvous::FailureReport Failure(const std::string& node, int rank) {
  rendezvous::FailureReport failure;
  failure.node.value = node;
  failure.rank = rank;
  failure.pid = 70;
  failure.exit_code = 137;
  failure.signal = 9;
  failure.unix_time_ms = 1738324800123;
  failure.stderr_tail = "one\r\ntwo \xff";
  return failure;
}

// The worker is killed, and described.
void Fail(JobRecord& record, int local_rank) {
  const WorkerEnd end{
      .local_rank = local_rank, .pid = 70, .exit_code = 137, .signal = 9, .unix_ms = 1738324800123};
  record.Note(AgentEvent(end), 3);
  LastWords words = record.Failed(end);
  words.report.stderr_tail = "one\r\ntwo \xff";
  record.Add(words);
}

TEST_CASE("report file: without a round the limit on restarts is the one that was asked for") {
  JobRecord record(PartOf(2), 1738324800123);
  record.Note(AgentAction(EndJob{143, ExitOwner::kSignal, "SIGTERM"}), 1738324801000);
  const Json report = Rendered(record);
  CHECK(report.get<int>("max_restarts") == 3);
  CHECK(report.get<int>("restarts") == 0);
  CHECK(report.get<std::string>("outcome") == "stopped");
  CHECK(report.get<int>("stopped_by_signal") == 15);
  CHECK(report.get<std::string>("exit_code_of") == "ddprun");
  CHECK(report.get<std::string>("started") == "2025-01-31T12:00:00.123Z");
  CHECK(report.get_child("rounds").empty());
}

TEST_CASE("report file: a round's workers have their world ranks, and null for what is not known") {
  JobRecord record(PartOf(2), 1);
  record.Note(AgentAction(FirstRound()), 2);
  record.WorkerRuns(0, 70);
  record.Note(AgentEvent(WorkerEnd{.local_rank = 0, .pid = 70, .exit_code = 0}), 3);
  const Json report = Rendered(record);
  CHECK(report.get<std::string>("outcome") == "succeeded");
  CHECK(report.get<int>("max_restarts") == 5);
  const Json& round = ElementOf(report, "rounds", 0);
  CHECK(round.get<std::string>("ended") == "null");
  const Json& ended = ElementOf(round, "workers", 0);
  CHECK(ended.get<int>("rank") == 4);
  CHECK(ended.get<int>("exit_code") == 0);
  CHECK(ended.get<std::string>("signal") == "null");
  const Json& unknown = ElementOf(round, "workers", 1);
  CHECK(unknown.get<int>("rank") == 5);
  CHECK(unknown.get<std::string>("pid") == "null");
  CHECK(unknown.get<std::string>("exit_code") == "null");
}

TEST_CASE("report file: a first failure of this node is told once, with its round") {
  JobRecord record(PartOf(2), 1);
  record.Note(AgentAction(FirstRound()), 2);
  Fail(record, 0);
  rendezvous::Concluded concluded;
  concluded.verdict.first_failure = Failure("n1", 4);
  record.Note(AgentEvent(concluded), 3);
  record.Note(AgentAction(EndJob{137, ExitOwner::kWorker, "rank 4 failed"}), 4);
  const Json report = Rendered(record);
  CHECK(report.get<std::string>("outcome") == "failed");
  CHECK(report.get<int>("failures_left_out") == 0);
  REQUIRE(report.get_child("failures").size() == 1);
  const Json& failure = ElementOf(report, "failures", 0);
  CHECK(failure.get<int>("round") == 1);
  CHECK(failure.get<std::string>("time") == "2025-01-31T12:00:00.123Z");
  CHECK(ElementOf(failure, "last_lines", 0).data() == "one");
  CHECK(ElementOf(failure, "last_lines", 1).data() == "two \xef\xbf\xbd");
}

TEST_CASE("report file: a first failure of another node stands behind this node's") {
  JobRecord record(PartOf(2), 1);
  record.Note(AgentAction(FirstRound()), 2);
  Fail(record, 0);
  rendezvous::Concluded concluded;
  concluded.verdict.first_failure = Failure("n0", 1);
  record.Note(AgentEvent(concluded), 3);
  const Json report = Rendered(record);
  REQUIRE(report.get_child("failures").size() == 2);
  CHECK(ElementOf(report, "failures", 1).get<std::string>("node_id") == "n0");
  CHECK(report.get<int>("first_failure.rank") == 1);
}

TEST_CASE("report file: what the record could not hold is counted") {
  JobRecord record(PartOf(80), 1);
  record.Note(AgentAction(FirstRound()), 2);
  for (int i = 0; i < 80; ++i) Fail(record, i);
  PrepareWorkers second = FirstRound();
  second.assignment.round.value = 2;
  record.Note(AgentAction(second), 3);
  Fail(record, 7);
  const Json report = Rendered(record);
  CHECK(report.get<int>("failures_left_out") == 16);
  REQUIRE(report.get_child("failures").size() == 65);
  CHECK(ElementOf(report, "failures", 0).get<int>("rank") == 4 + 16);
  CHECK(ElementOf(report, "failures", 64).get<int>("round") == 2);
}

}  // namespace
}  // namespace ddprun::launcher
