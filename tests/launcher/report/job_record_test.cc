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

void Begin(JobRecord& record, uint64_t number) {
  record.Does(StartWorkers{RoundOf(number)}, 1000 * static_cast<int64_t>(number));
}

// Of local ranks 0 to count-1, in the order in which they were heard of.
std::vector<rendezvous::FailureReport> Failures(int count) {
  std::vector<rendezvous::FailureReport> failures(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    failures[static_cast<size_t>(i)].local_rank = i;
    failures[static_cast<size_t>(i)].exit_code = 7;
  }
  return failures;
}

TEST_CASE("job record: a round has its workers, their ends, and why they were stopped") {
  JobRecord record(2, 500);
  Begin(record, 1);
  record.WorkerRuns(0, 70);
  record.WorkerRuns(1, 71);
  record.WorkerIsGone({.local_rank = 1, .pid = 71, .exit_code = 137, .signal = 9}, false);
  rendezvous::Drained drained;
  drained.round.value = 1;
  drained.reason = "rank 1 failed";
  record.Heard(drained, 1500);
  drained.reason = "told again";
  record.Heard(drained, 1600);
  record.WorkerIsGone({.local_rank = 0, .pid = 70, .exit_code = 143, .signal = 15}, true);
  record.Heard(WorkersGone{}, 2000);

  REQUIRE(record.rounds().size() == 1);
  const RoundRecord& round = record.rounds()[0];
  CHECK(round.started_unix_ms == 1000);
  CHECK(round.ended_unix_ms == 2000);
  CHECK(round.end_reason == "rank 1 failed");
  REQUIRE(round.workers.size() == 2);
  CHECK(round.workers[0].pid == 70);
  CHECK(round.workers[0].was_told_to_stop);
  CHECK(round.workers[1].has_ended);
  CHECK(round.workers[1].exit_code == 137);
  CHECK(round.workers[1].signal == 9);
  CHECK_FALSE(round.workers[1].was_told_to_stop);
}

TEST_CASE("job record: the reason may come when the workers are gone") {
  JobRecord record(2, 500);
  Begin(record, 1);
  record.WorkerIsGone({.local_rank = 1, .pid = 71, .exit_code = 7}, false);
  record.WorkerIsGone({.local_rank = 0, .pid = 70, .exit_code = 143, .signal = 15}, true);
  record.Heard(WorkersGone{}, 2000);
  rendezvous::Drained drained;
  drained.round.value = 1;
  drained.reason = "rank 1 failed";
  record.Heard(drained, 2100);
  CHECK(record.rounds()[0].end_reason == "rank 1 failed");
}

TEST_CASE("job record: what a drain of another round says is no reason of this one") {
  JobRecord record(1, 0);
  Begin(record, 2);
  rendezvous::Drained drained;
  drained.round.value = 1;
  drained.reason = "late";
  record.Heard(drained, 2100);
  CHECK(record.rounds()[0].end_reason.empty());
}

TEST_CASE("job record: what comes before the first round is no one's") {
  JobRecord record(1, 0);
  record.Heard(WorkersGone{}, 10);
  record.WorkerRuns(0, 70);
  record.WorkerIsGone({}, false);
  record.SetFailures(Failures(1));
  CHECK(record.rounds().empty());
  CHECK(record.failures().empty());
  record.Does(ExitAgent{121, ExitOwner::kDdprun, "nobody came"}, 30);
  CHECK(record.ended_unix_ms() == 30);
  CHECK(record.end().exit_code == 121);
}

TEST_CASE("job record: of very many rounds the newest are kept, and their number") {
  JobRecord record(1, 0);
  for (uint64_t number = 1; number <= 150; ++number) Begin(record, number);
  CHECK(record.rounds_seen() == 150);
  REQUIRE(record.rounds().size() == JobRecord::kMaxRounds);
  CHECK(record.rounds().front().assignment.round.value == 51);
}

TEST_CASE("job record: failures of a round told again take the place of what was known") {
  JobRecord record(4, 0);
  Begin(record, 1);
  record.SetFailures(Failures(2));
  Begin(record, 2);
  record.SetFailures(Failures(1));
  record.SetFailures(Failures(3));
  record.SetFailures(Failures(3));
  CHECK(record.failures_seen() == 5);
  REQUIRE(record.failures().size() == 5);
  CHECK(record.failures()[1].assignment.round.value == 1);
  CHECK(record.failures()[2].assignment.round.value == 2);
}

TEST_CASE("job record: more failures than it holds are counted once, however often told") {
  JobRecord record(80, 0);
  Begin(record, 1);
  for (int i = 0; i < 3; ++i) record.SetFailures(Failures(80));
  CHECK(record.failures_seen() == 80);
  CHECK(record.failures().size() == JobRecord::kMaxFailures);
}

TEST_CASE("job record: the first failure of the last round keeps its place") {
  JobRecord record(80, 0);
  Begin(record, 1);
  record.SetFailures(Failures(80));
  Begin(record, 2);
  record.SetFailures(Failures(10));
  REQUIRE(record.failures().size() == JobRecord::kMaxFailures);
  // Of the round before, the newest.
  CHECK(record.failures()[0].assignment.round.value == 1);
  CHECK(record.failures()[53].report.local_rank == 79);
  record.SetFailures(Failures(80));
  REQUIRE(record.failures().size() == JobRecord::kMaxFailures);
  CHECK(record.failures()[0].assignment.round.value == 2);
  CHECK(record.failures()[0].report.local_rank == 0);
  CHECK(record.failures()[1].report.local_rank == 17);
  CHECK(record.failures().back().report.local_rank == 79);
  CHECK(record.failures_seen() == 160);
}

TEST_CASE("job record: failures that were not described are counted") {
  JobRecord record(4, 0);
  Begin(record, 1);
  record.SetFailures(Failures(2), 3);
  record.SetFailures(Failures(2), 3);
  CHECK(record.failures().size() == 2);
  CHECK(record.failures_seen() == 5);
}

}  // namespace
}  // namespace ddprun::launcher
