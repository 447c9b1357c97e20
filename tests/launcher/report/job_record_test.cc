#include "launcher/report/job_record.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

rendezvous::Assignment RoundOf(uint64_t number) {
  rendezvous::Assignment assignment;
  assignment.round.value = number;
  assignment.restart_count = static_cast<int>(number) - 1;
  return assignment;
}

JobRecord::Part NodeOf(int workers) {
  JobRecord::Part part{NodeId{"n1"}, "alpha"};
  part.config.workers_per_node = workers;
  return part;
}

void Begin(JobRecord& record, uint64_t number) {
  record.Note(AgentAction(PrepareWorkers{RoundOf(number)}), 1000 * static_cast<int64_t>(number));
}

void End(JobRecord& record, const WorkerEnd& end, int64_t unix_ms = 0) {
  record.Note(AgentEvent(end), unix_ms);
}

WorkerEnd Exited(int local_rank, int code, bool was_told_to_stop = false) {
  return {.local_rank = local_rank,
          .pid = 70 + local_rank,
          .exit_code = code,
          .was_told_to_stop = was_told_to_stop,
          .message = "exit code " + std::to_string(code)};
}

// All that are unread say nothing.
void ReadAll(JobRecord& record) {
  for (const LastWords& words : record.Unread()) record.Add(words);
}

// Local ranks 0 to count-1 fail, in this order.
void FailAll(JobRecord& record, int count) {
  for (int i = 0; i < count; ++i) End(record, Exited(i, 7));
  ReadAll(record);
}

size_t FailuresOf(const JobRecord& record) {
  size_t count = 0;
  for (const RoundRecord& round : record.rounds()) count += round.Failures().size();
  return count;
}

TEST_CASE("job record: a round has its workers, their ends, and why they were stopped") {
  JobRecord record(NodeOf(2), 500);
  Begin(record, 1);
  record.WorkerRuns(0, 70, "");
  record.WorkerRuns(1, 71, "");
  End(record, {.local_rank = 1, .pid = 71, .exit_code = 137, .signal = 9});
  rendezvous::Drained drained;
  drained.round.value = 1;
  drained.reason = "rank 1 failed";
  record.Note(AgentEvent(drained), 1500);
  drained.reason = "told again";
  record.Note(AgentEvent(drained), 1600);
  End(record, Exited(0, 143, true));
  record.Note(AgentEvent(WorkersGone{}), 2000);

  REQUIRE(record.rounds().size() == 1);
  const RoundRecord& round = record.rounds()[0];
  CHECK(round.started_unix_ms == 1000);
  CHECK(round.ended_unix_ms == 2000);
  CHECK(round.end_reason == "rank 1 failed");
  CHECK(round.ended == std::vector<int>{1, 0});
  REQUIRE(round.workers.size() == 2);
  CHECK(round.workers[0].pid == 70);
  CHECK(round.workers[0].end->was_told_to_stop);
  REQUIRE(round.workers[1].end);
  CHECK(round.workers[1].end->exit_code == 137);
  CHECK(round.workers[1].end->signal == 9);
}

TEST_CASE("job record: the reason may come when the workers are gone") {
  JobRecord record(NodeOf(2), 500);
  Begin(record, 1);
  End(record, Exited(1, 7));
  record.Note(AgentEvent(WorkersGone{}), 2000);
  rendezvous::Drained drained;
  drained.round.value = 1;
  drained.reason = "rank 1 failed";
  record.Note(AgentEvent(drained), 2100);
  CHECK(record.rounds()[0].end_reason == "rank 1 failed");
}

TEST_CASE("job record: a round that is given up before its workers start has ended, too") {
  JobRecord record(NodeOf(1), 0);
  Begin(record, 1);
  record.Note(AgentAction(JoinRound{}), 1700);
  CHECK(record.rounds()[0].ended_unix_ms == 1700);
}

TEST_CASE("job record: what a drain of another round says is no reason of this one") {
  JobRecord record(NodeOf(1), 0);
  Begin(record, 2);
  rendezvous::Drained drained;
  drained.round.value = 1;
  drained.reason = "late";
  record.Note(AgentEvent(drained), 2100);
  CHECK(record.rounds()[0].end_reason.empty());
}

TEST_CASE("job record: the next round knows better why this one ended") {
  JobRecord record(NodeOf(1), 0);
  Begin(record, 1);
  record.Note(AgentEvent(rendezvous::Drained{Round{1}, "rank 0 failed"}), 1100);
  rendezvous::Assignment next = RoundOf(2);
  next.restart_reason = "node b is lost";
  record.Note(AgentAction(PrepareWorkers{next}), 2000);
  CHECK(record.rounds()[0].end_reason == "node b is lost");
}

TEST_CASE("job record: the failure that a node reports without the coordinator's verdict is kept") {
  JobRecord record(NodeOf(1), 0);
  rendezvous::FailureReport failure;
  failure.rank = 3;
  record.Note(AgentAction(PrintReport{{7, "no coordinator answered", failure}}), 10);
  REQUIRE(record.verdict());
  CHECK(record.verdict()->first_failure == failure);
}

TEST_CASE("job record: what comes before the first round is no one's") {
  JobRecord record(NodeOf(1), 0);
  record.Note(AgentEvent(WorkersGone{}), 10);
  record.WorkerRuns(0, 70, "");
  End(record, {});
  CHECK(record.Unread().empty());
  CHECK_FALSE(record.Add(record.Failed({})));
  CHECK(record.rounds().empty());
  record.Note(AgentAction(EndJob{121, ExitOwner::kDdprun, "nobody came"}), 30);
  CHECK(record.ended_unix_ms() == 30);
  CHECK(record.end().exit_code == 121);
}

TEST_CASE("job record: a failure is told with whose it is, and with all its worker said") {
  JobRecord record(NodeOf(2), 0);
  rendezvous::Assignment assignment = RoundOf(1);
  assignment.first_rank = 4;
  assignment.node_rank = 2;
  record.Note(AgentAction(PrepareWorkers{assignment}), 0);
  record.WorkerRuns(1, 71, "/errors/1");
  WorkerEnd end = Exited(1, 137);
  end.signal = 9;
  end.dumped_core = true;
  end.unix_ms = 17;
  End(record, end);
  const LastWords wanted = record.Failed(end);
  CHECK(wanted.is_failure);
  CHECK(wanted.report.rank == 5);
  CHECK(wanted.report.error_file == "/errors/1");
  LastWords words = wanted;
  words.report.stderr_tail = "last";
  words.report.error = {.message = "boom"};
  words.report.left_peer = 3;
  const auto report = record.Add(words);
  REQUIRE(report);
  CHECK(report->node.value == "n1");
  CHECK(report->host == "alpha");
  CHECK(report->node_rank == 2);
  CHECK(report->rank == 5);
  CHECK(report->local_rank == 1);
  CHECK(report->pid == 71);
  CHECK(report->exit_code == 137);
  CHECK(report->signal == 9);
  CHECK(report->dumped_core);
  CHECK(report->message == "exit code 137");
  CHECK(report->stderr_tail == "last");
  CHECK(report->unix_time_ms == 17);
  CHECK(report->error_file == "/errors/1");
  CHECK(report->error->message == "boom");
  CHECK(report->left_peer == 3);
  // What was told of a worker stays what it was.
  CHECK(record.Unread().empty());
  CHECK(record.Add(wanted) == report);
}

TEST_CASE("job record: a worker that was told to stop failed only if its error file says so") {
  JobRecord record(NodeOf(3), 0);
  Begin(record, 1);
  for (const int local_rank : {2, 0}) End(record, Exited(local_rank, 143, true));
  End(record, Exited(1, 0));
  const std::vector<LastWords> unread = record.Unread();
  REQUIRE(unread.size() == 2);
  CHECK(unread[0].report.local_rank == 2);
  CHECK_FALSE(unread[0].is_failure);
  CHECK_FALSE(record.Add(unread[0]));
  LastWords says_so{unread[1].report, /*is_failure=*/true};
  says_so.report.error = {.message = "lost it on the way"};
  CHECK(record.Add(says_so));
  CHECK(record.Unread().empty());
  CHECK(record.rounds()[0].Failures().size() == 1);
  // One that is reported after all, because another's end explains the stop, is.
  CHECK(record.Add(record.Failed(Exited(2, 1, true))));
  CHECK(record.rounds()[0].Failures().size() == 2);
}

TEST_CASE("job record: failures stand in the order of the ends, whenever they are described") {
  JobRecord record(NodeOf(3), 0);
  Begin(record, 1);
  End(record, Exited(2, 7));
  End(record, Exited(0, 7));
  record.Add(record.Failed(Exited(0, 7)));
  ReadAll(record);
  REQUIRE(record.rounds()[0].Failures().size() == 2);
  CHECK(record.rounds()[0].Failures()[0].local_rank == 2);
}

TEST_CASE("job record: of very many rounds the newest are kept, and their number") {
  JobRecord record(NodeOf(1), 0);
  for (uint64_t number = 1; number <= 150; ++number) Begin(record, number);
  CHECK(record.rounds_left_out() == 50);
  REQUIRE(record.rounds().size() == JobRecord::kMaxRounds);
  CHECK(record.rounds().front().assignment.round.value == 51);
}

TEST_CASE("job record: of old rounds the newest failures are kept, of the newest round all") {
  JobRecord record(NodeOf(80), 0);
  Begin(record, 1);
  FailAll(record, 80);
  CHECK(FailuresOf(record) == 80);
  CHECK(record.room_for_texts() == 0);
  Begin(record, 2);
  CHECK(record.room_for_texts() == JobRecord::kMaxTexts);
  CHECK(FailuresOf(record) == JobRecord::kMaxOldFailures);
  CHECK(record.failures_left_out() == 16);
  CHECK(record.rounds()[0].Failures()[0].local_rank == 16);
  FailAll(record, 80);
  CHECK(FailuresOf(record) == JobRecord::kMaxOldFailures + 80);
  Begin(record, 3);
  CHECK(record.rounds()[0].Failures().empty());
  CHECK(FailuresOf(record) == JobRecord::kMaxOldFailures);
  CHECK(record.failures_left_out() == 96);
}

TEST_CASE("job record: failures that were not described are counted") {
  JobRecord record(NodeOf(2), 0);
  Begin(record, 1);
  End(record, Exited(0, 143, true));
  LastWords words = record.Unread()[0];
  CHECK_FALSE(words.is_failure);
  words.is_left_out = true;
  record.Add(words);
  CHECK(FailuresOf(record) == 0);
  CHECK(record.failures_left_out() == 1);
}

}  // namespace
}  // namespace ddprun::launcher
