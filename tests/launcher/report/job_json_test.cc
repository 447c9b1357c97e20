#include "launcher/report/job_json.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/agent/file_timers.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"

namespace ddprun::launcher {
namespace {

using testing::ElementOf;
using testing::Json;

JobRecord::Part PartOf(int workers) {
  JobRecord::Part part{NodeId{"n1"}, "alpha", "./bin/train.py"};
  part.config.workers_per_node = workers;
  part.config.run_id = "run7";
  part.config.role = "trainer";
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

TEST_CASE("report file: a job that the user has stopped names neither a signal nor a worker") {
  JobRecord record(PartOf(2), 1738324800123);
  const std::string reason = "stopped by ddprun stop on node a";
  record.Note(AgentAction(EndJob{143, ExitOwner::kStopped, reason}), 1738324801000);
  const Json report = Rendered(record);
  CHECK(report.get<std::string>("outcome") == "stopped");
  CHECK(report.get<std::string>("exit_code_of") == "ddprun stop");
  CHECK(report.get<std::string>("stopped_by_signal") == "null");
  CHECK(report.get<std::string>("reason") == reason);
}

TEST_CASE("report file: a round's workers have their world ranks, and null for what is not known") {
  JobRecord record(PartOf(2), 1);
  record.Note(AgentAction(FirstRound()), 2);
  record.WorkerRuns(0, 70, "");
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

struct Fixture {
  explicit Fixture(int workers) : record(PartOf(workers), 1000) {
    PrepareWorkers start;
    start.assignment.round.value = 1;
    start.assignment.first_rank = 4;
    start.assignment.node_rank = 2;
    start.assignment.node_count = 3;
    start.assignment.restart_count = 1;
    record.Note(AgentAction(start), 2000);
    for (int i = 0; i < workers; ++i) record.WorkerRuns(i, 70 + i, "");
  }
  void End(const WorkerEnd& end) { record.Note(AgentEvent(end), 4000); }
  // Of the line's "metadata".
  Json Facts(size_t line) const {
    const auto json = testing::ParseJson(lines.at(line));
    REQUIRE_MESSAGE(json, lines.at(line));
    return json->get_child("metadata");
  }
  Json Details(size_t line) const {
    const auto json = testing::ParseJson(Facts(line).get<std::string>("metadata"));
    REQUIRE(json);
    return *json;
  }
  // "WORKER:FAILED AGENT:SUCCEEDED".
  std::string Seen() const {
    std::string seen;
    for (const std::string& line : lines) {
      const auto json = testing::ParseJson(line);
      REQUIRE_MESSAGE(json, line);
      if (!seen.empty()) seen += " ";
      seen += json->get<std::string>("source") + ":" + json->get<std::string>("metadata.state");
    }
    return seen;
  }

  JobRecord record;
  std::vector<std::string> lines;
  StatusEvents events{record, [this](const std::string& line) { lines.push_back(line); }};
};

TEST_CASE("status events: nobody wants them, nothing is written") {
  const JobRecord record(PartOf(1), 0);
  StatusEvents events(record, {});
  events.RoundFormed(1, 1);
  events.Waited(1, 1);
  events.WorkerRuns({}, 1);
  events.TimerEvent({}, false, 1);
  events.JobEnded(1);
}

TEST_CASE("status events: a line says whose it is, where and when") {
  Fixture fixture(1);
  fixture.events.WorkerRuns({.local_rank = 0, .pid = 70}, 4500);
  REQUIRE(fixture.lines.size() == 1);
  CHECK(fixture.lines[0] != Contains("\n"));
  const Json facts = fixture.Facts(0);
  CHECK(facts.get<std::string>("run_id") == "run7");
  CHECK(facts.get<int>("global_rank") == 4);
  CHECK(facts.get<int>("group_rank") == 2);
  CHECK(facts.get<std::string>("worker_id") == "70");
  CHECK(facts.get<std::string>("role") == "trainer");
  CHECK(facts.get<std::string>("hostname") == "alpha");
  CHECK(facts.get<std::string>("state") == "START");
  CHECK(facts.get<int>("total_run_time") == 3);
  CHECK(facts.get<std::string>("rdzv_backend") == "c10d");
  CHECK(facts.get<int>("agent_restarts") == 1);
  CHECK(fixture.Details(0).get<int>("group_world_size") == 3);
  CHECK(fixture.Details(0).get<std::string>("entry_point") == "train.py");
}

TEST_CASE("status events: a round is two events, of the wait and of the ranks that came with it") {
  Fixture fixture(1);
  fixture.events.RoundFormed(4000, 1250);
  CHECK(fixture.Seen() == "AGENT:RENDEZVOUS AGENT:ASSIGN_WORKER_RANKS");
  CHECK(fixture.Facts(0).get<double>("duration_ms") == 1250);
  CHECK(fixture.Facts(1).get<double>("duration_ms") == 0);
  CHECK(fixture.Facts(1).get<std::string>("global_rank") == "null");
  CHECK(fixture.Facts(1).get<int>("agent_restarts") == 1);
}

TEST_CASE("status events: a wait for a round that did not come is told without ranks") {
  const JobRecord record(PartOf(1), 0);
  std::vector<std::string> lines;
  StatusEvents events(record, [&](const std::string& line) { lines.push_back(line); });
  events.Waited(4000, 3000);
  REQUIRE(lines.size() == 1);
  const auto json = testing::ParseJson(lines[0]);
  REQUIRE(json);
  CHECK(json->get<std::string>("metadata.state") == "RENDEZVOUS");
  CHECK(json->get<double>("metadata.duration_ms") == 3000);
  CHECK(json->get<std::string>("metadata.group_rank") == "null");
}

TEST_CASE("status events: at the end each worker's own, and the agent's") {
  Fixture fixture(4);
  fixture.End({.local_rank = 0, .pid = 70, .exit_code = 0});
  fixture.End({.local_rank = 1, .pid = 71, .exit_code = 137, .signal = 9});
  fixture.End(
      {.local_rank = 2, .pid = 72, .exit_code = 143, .signal = 15, .was_told_to_stop = true});
  fixture.record.Note(AgentAction(EndJob{137, ExitOwner::kWorker, "rank 5 failed"}), 5000);
  fixture.events.JobEnded(5000);
  // The last one's end is not known.
  CHECK(fixture.Seen() ==
        "WORKER:SUCCEEDED WORKER:FAILED WORKER:TERMINATED WORKER:TERMINATED AGENT:SUCCEEDED");
  CHECK(fixture.Details(1).get_child("exit_code").front().second.get_value<int>() == -9);
  CHECK(fixture.Facts(1).get<std::string>("raw_error") == R"({"message":"<NONE>"})");
  CHECK(fixture.Facts(2).get<std::string>("raw_error") == "null");
}

TEST_CASE("status events: a worker that could not become its program has failed") {
  Fixture fixture(2);
  fixture.End({.local_rank = 0, .exit_code = 127});
  fixture.End(
      {.local_rank = 1, .pid = 71, .exit_code = 137, .signal = 9, .was_told_to_stop = true});
  fixture.record.Note(AgentAction(EndJob{127, ExitOwner::kWorker, "spawn rank 4"}), 5000);
  fixture.events.JobEnded(5000);
  CHECK(fixture.Seen() == "WORKER:FAILED WORKER:TERMINATED AGENT:SUCCEEDED");
  CHECK(fixture.Details(0).get_child("exit_code").front().second.get_value<int>() == 127);
  const auto error = testing::ParseJson(fixture.Facts(0).get<std::string>("raw_error"));
  REQUIRE(error);
  CHECK(error->get<std::string>("message") == "<NONE>");
  CHECK(error->get<std::string>("errorTraits.category") == "system_terminated_error");
}

TEST_CASE("status events: a worker that was stopped but left an error file has failed with it") {
  Fixture fixture(1);
  fixture.End({.local_rank = 0, .pid = 70, .exit_code = 1, .was_told_to_stop = true});
  LastWords words = fixture.record.Unread().at(0);
  words.report.error = {.message = "boom \xff", .traceback = "here", .unix_time_s = 17};
  words.is_failure = true;
  fixture.record.Add(words);
  fixture.events.JobEnded(5000);
  CHECK(fixture.Seen() == "WORKER:FAILED AGENT:SUCCEEDED");
  const auto error = testing::ParseJson(fixture.Facts(0).get<std::string>("raw_error"));
  REQUIRE(error);
  CHECK(error->get<std::string>("message.message") == "boom \xef\xbf\xbd");
  CHECK(error->get<std::string>("message.extraInfo.py_callstack") == "here");
  CHECK(error->get<std::string>("message.extraInfo.timestamp") == "17");
}

TEST_CASE("status events: an end that is ddprun's own is a failure of the agent") {
  JobRecord record(PartOf(1), 0);
  record.Note(AgentAction(EndJob{121, ExitOwner::kDdprun, "1 of 2 nodes"}), 10);
  std::vector<std::string> lines;
  StatusEvents events(record, [&](const std::string& line) { lines.push_back(line); });
  events.JobEnded(10);
  REQUIRE(lines.size() == 1);
  const auto json = testing::ParseJson(lines[0]);
  REQUIRE(json);
  CHECK(json->get<std::string>("metadata.state") == "FAILED");
  CHECK(json->get<std::string>("metadata.raw_error") == "1 of 2 nodes");
  CHECK(json->get<std::string>("metadata.group_rank") == "null");
}

TEST_CASE("status events: a timer's line has its own name and details") {
  Fixture fixture(1);
  fixture.events.TimerEvent({.pid = 70, .scope = "a.py#3", .expires = 1.5, .signal = 9},
                            /*is_kill=*/false, 4000);
  const auto json = testing::ParseJson(fixture.lines.at(0));
  REQUIRE(json);
  CHECK(json->get<std::string>("name") == "timer expired");
  CHECK(json->get<std::string>("source") == "AGENT");
  CHECK(fixture.Details(0).get<std::string>("scope_id") == "a.py#3");
  CHECK(fixture.Details(0).get<std::string>("signal") == "9");
}

}  // namespace
}  // namespace ddprun::launcher
