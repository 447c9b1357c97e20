#include "rendezvous/server/job_file.h"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/str_format.h"
#include "rendezvous/base/fnv1a.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/contains.h"
#include "tests/support/temp_dir.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::rendezvous {
namespace {

uint64_t Next(const std::string& directory) {
  const auto epoch = BeginJob(directory);
  REQUIRE_MESSAGE(epoch.ok(), epoch.status().ToString());
  return epoch->epoch.value;
}

TEST_CASE("job file: each start counts one up") {
  const testing::TempDir directory;
  const uint64_t first = Next(directory.path());
  CHECK(first > 0);
  CHECK(Next(directory.path()) == first + 1);
  CHECK(Next(directory.path()) == first + 2);
}

TEST_CASE("job file: a lost or damaged file still gives a greater epoch") {
  const testing::TempDir directory;
  const std::string path = directory.File("job");
  uint64_t last = Next(directory.path());
  std::string intact;
  {
    std::ifstream file(path);
    intact.assign(std::istreambuf_iterator<char>(file), {});
  }
  REQUIRE(intact.size() > 20);
  for (size_t at = 0; at < intact.size(); ++at) {
    std::string flipped = intact;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    std::ofstream(path, std::ios::trunc) << flipped;
    const uint64_t next = Next(directory.path());
    CHECK(next > last);
    last = next;
  }
  for (const size_t size : {size_t{0}, size_t{5}, intact.size() - 1}) {
    std::ofstream(path, std::ios::trunc) << intact.substr(0, size);
    const uint64_t next = Next(directory.path());
    CHECK(next > last);
    last = next;
  }
  std::filesystem::remove(path);
  CHECK(Next(directory.path()) > last);
}

TEST_CASE("job file: a missing directory is made, and goes when the job is over") {
  const testing::TempDir directory;
  const std::string run = directory.File("run");
  const uint64_t first = Next(run);
  CHECK(Next(run) == first + 1);
  ForgetJob(run);
  CHECK_FALSE(std::filesystem::exists(run));
  CHECK(Next(run) > first + 1);
  std::ofstream(run + "/other") << "x";
  ForgetJob(run);
  CHECK(std::filesystem::exists(run + "/other"));
  CHECK_FALSE(std::filesystem::exists(run + "/job"));
}

TEST_CASE("job file: a directory that cannot be made is an error that names the file") {
  const auto epoch = BeginJob("/nonexistent/run");
  REQUIRE_FALSE(epoch.ok());
  CHECK(epoch.status().message() == Contains("/nonexistent/run/job"));
}

Record FullRecord() {
  Record record{.instance = {1, 2}, .epoch = Epoch{40}, .restart_count = 3, .verdict = Verdict{}};
  record.verdict->exit_code = 7;
  record.verdict->reason = "rank 1 on node b failed";
  record.verdict->first_failure = FailureReport{};
  record.verdict->first_failure->node = NodeId{"b"};
  record.verdict->first_failure->stderr_tail = std::string("\0\n\xff", 3) + std::string(60000, 'x');
  return record;
}

// A file without a verdict that has these values.
std::string WithChecksum(const std::string& values) {
  Fnv1a checksum;
  checksum.Add(values.data(), values.size());
  return absl::StrFormat("%s %016x\n", values, checksum.value());
}

TEST_CASE("job file: the next coordinator begins with what the last one recorded") {
  const testing::TempDir directory;
  const auto first = BeginJob(directory.path());
  REQUIRE(first.ok());
  CHECK(first->instance.is_known());
  CHECK_FALSE(first->is_remembered);
  // Nobody has heard of the first one's instance.
  const auto second = BeginJob(directory.path());
  REQUIRE(second.ok());
  CHECK(second->instance != first->instance);
  CHECK_FALSE(second->is_remembered);

  const Record record = FullRecord();
  REQUIRE(WriteJob(directory.path(), record).ok());
  const auto third = BeginJob(directory.path());
  REQUIRE(third.ok());
  CHECK(third->is_remembered);
  CHECK(third->instance == record.instance);
  CHECK(third->epoch == Epoch{41});
  CHECK(third->restart_count == 3);
  CHECK(third->verdict == record.verdict);
}

TEST_CASE(
    "job file: what is used of the limits of restarts is remembered, by a line of version 2") {
  const testing::TempDir directory;
  const auto line = [&directory] {
    std::ifstream file(directory.File("job"), std::ios::binary);
    std::string first;
    std::getline(file, first);
    return first;
  };
  Record record = FullRecord();
  REQUIRE(WriteJob(directory.path(), record).ok());
  CHECK(line().find("ddprun-job 1 ") == 0);  // Which releases before the limits read.
  CHECK(BeginJob(directory.path())->spent == RestartsSpent{});
  record.spent = {.charged_epoch = Epoch{39},
                  .charged_round = Round{UINT64_MAX},
                  .same_failures = 2,
                  .fingerprint = UINT64_MAX - 1,
                  .failures_in_row = 3,
                  .progress = std::chrono::hours(9),
                  .given_back = 4,
                  .node_losses = 5,
                  .preemptions = 6};
  REQUIRE(WriteJob(directory.path(), record).ok());
  CHECK(line().find("ddprun-job 2 ") == 0);
  for (int start = 0; start < 2; ++start) {
    const auto next = BeginJob(directory.path());
    REQUIRE(next.ok());
    CHECK(next->spent == record.spent);
    CHECK(next->restart_count == 3);
    CHECK(next->verdict == record.verdict);
  }
}

TEST_CASE("job file: hosts in quarantine outlive the coordinator, with and without a verdict") {
  Record record = FullRecord();
  record.bad_nodes = {.count = 3,
                      .hosts = {{"node-a", "node node-a is bad: ECC", std::chrono::seconds(20)},
                                {"node-b", "line\nof two", std::chrono::hours(24)}}};
  for (const bool has_verdict : {true, false}) {
    if (!has_verdict) record.verdict.reset();
    const std::string text = EncodeRecord(record);
    CHECK(DecodeRecord(text) == record);
    for (size_t size = 0; size < text.size(); size += size < 300 ? 1 : 997) {
      CHECK(!DecodeRecord(text.substr(0, size)));
    }
  }
  const testing::TempDir directory;
  REQUIRE(WriteJob(directory.path(), record).ok());
  const absl::StatusOr<Beginning> next = BeginJob(directory.path());
  REQUIRE(next.ok());
  CHECK(next->bad_nodes == record.bad_nodes);
}

TEST_CASE("job file: a line of a later release is as good as none, though it is intact") {
  const testing::TempDir directory;
  Record record = FullRecord();
  record.epoch = Epoch{Next(directory.path()) + 1};
  record.verdict.reset();
  for (const bool has_spent : {false, true}) {
    if (has_spent) record.spent.node_losses = 5;
    const std::string ours = EncodeRecord(record);
    REQUIRE(DecodeRecord(ours) == record);
    const std::string fields = ours.substr(0, ours.rfind(' ')).substr(sizeof("ddprun-job 2") - 1);
    CHECK(WithChecksum((has_spent ? "ddprun-job 2" : "ddprun-job 1") + fields) == ours);
    // A later one may say more, too.
    for (const std::string& later : {fields, fields + " 7"}) {
      std::ofstream(directory.File("job"), std::ios::trunc) << WithChecksum("ddprun-job 3" + later);
      const auto next = BeginJob(directory.path());
      REQUIRE(next.ok());
      CHECK_FALSE(next->is_remembered);
      CHECK(next->instance != record.instance);
      CHECK(next->restart_count == 0);
      CHECK(next->epoch > record.epoch);
    }
  }
}

TEST_CASE("job file: counts that cannot be are none") {
  const testing::TempDir directory;
  Record record = FullRecord();
  for (const RestartsSpent& spent :
       {RestartsSpent{.same_failures = -1}, RestartsSpent{.failures_in_row = INT_MAX},
        RestartsSpent{.progress = std::chrono::milliseconds(-1)},
        RestartsSpent{.progress = std::chrono::milliseconds::max()}}) {
    record.spent = spent;
    REQUIRE(WriteJob(directory.path(), record).ok());
    const auto next = BeginJob(directory.path());
    REQUIRE(next.ok());
    CHECK(next->restart_count == 3);
    CHECK(next->spent == RestartsSpent{});
  }
}

TEST_CASE("job file: a torn or flipped verdict is none") {
  const testing::TempDir directory;
  REQUIRE(WriteJob(directory.path(), FullRecord()).ok());
  const std::string path = directory.File("job");
  std::string intact;
  {
    std::ifstream file(path, std::ios::binary);
    intact.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (const size_t at : {size_t{20}, size_t{100}, intact.size() / 2, intact.size() - 1}) {
    std::string flipped = intact;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    std::ofstream(path, std::ios::trunc | std::ios::binary) << flipped;
    const auto next = BeginJob(directory.path());
    REQUIRE(next.ok());
    CHECK_FALSE(next->is_remembered);
    CHECK_FALSE(next->verdict.has_value());
  }
  std::ofstream(path, std::ios::trunc | std::ios::binary) << intact.substr(0, intact.size() / 2);
  CHECK_FALSE(BeginJob(directory.path())->is_remembered);
}

TEST_CASE("job file: its thread writes the newest record and says so, then forgets it") {
  const testing::TempDir directory;
  // Not advanced: the end waits for the last record, however slow the disk is.
  const testing::VirtualClock clock;
  const std::string run = directory.File("run");
  std::promise<void> written;
  {
    auto file = JobFile::Open(run, clock);
    REQUIRE(file.ok());
    REQUIRE((*file)->Begin(0, std::chrono::seconds(30)).ok());
    Record record = FullRecord();
    (*file)->Write(record, [&written] { written.set_value(); });
    REQUIRE(written.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    record.restart_count = 4;
    (*file)->Write(record, nullptr);
  }
  CHECK(BeginJob(run)->restart_count == 4);
  auto again = JobFile::Open(run, clock);
  REQUIRE(again.ok());
  (*again)->Forget(std::chrono::seconds(30));
  CHECK_FALSE(std::filesystem::exists(run));
}

// As a coordinator does whose agent leaves a job that goes on.
void LeaveJob(const std::string& run, std::chrono::seconds nodes_wait) {
  auto file = JobFile::Open(run, SteadyClock());
  REQUIRE(file.ok());
  REQUIRE((*file)->Begin(0, std::chrono::seconds(30)).ok());
  (*file)->Write(FullRecord(), nullptr);
  (*file)->Leave(std::chrono::seconds(30), nodes_wait);
}

TEST_CASE("job file: what a coordinator leaves is taken up as long as nodes may wait for one") {
  const testing::TempDir directory;
  const std::string run = directory.File("run");
  LeaveJob(run, std::chrono::hours(1));
  CHECK(BeginJob(run)->restart_count == FullRecord().restart_count);
  // It is this coordinator's now, which may be killed: no time ends that.
  CHECK(BeginJob(run)->restart_count == FullRecord().restart_count);
  ForgetJob(run);
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE(
    "job file: a later job of the same id does not begin with the restarts of one that left") {
  const testing::TempDir directory;
  const std::string run = directory.File("run");
  LeaveJob(run, std::chrono::seconds(0));
  const auto next = BeginJob(run);
  REQUIRE(next.ok());
  CHECK(next->restart_count == 0);
  CHECK_FALSE(next->is_remembered);
  CHECK(next->epoch.value > FullRecord().epoch.value);
  ForgetJob(run);
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE("job file: what was killed long ago is removed by the next job") {
  const testing::TempDir folder;
  const auto run_dir = [&](const char* name) { return (folder.path() / name).string(); };
  const auto living = JobFile::Open(run_dir("living"), SteadyClock()).value();
  REQUIRE(living->Begin(0, std::chrono::seconds(10)).ok());
  for (const char* name : {"long_ago", "just_now"}) Next(run_dir(name));
  LeaveJob(run_dir("left"), std::chrono::seconds(0));
  const std::filesystem::path left = run_dir("left") + "/left";
  std::filesystem::last_write_time(
      left, std::filesystem::last_write_time(left) - std::chrono::minutes(61));
  for (const char* name : {"living", "long_ago"}) {
    const std::filesystem::path file = folder.path() / name / "job";
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(file) - std::chrono::minutes(61));
  }
  const auto next = JobFile::Open(run_dir("next"), SteadyClock()).value();
  const auto begun = next->Begin(0, std::chrono::seconds(10));
  REQUIRE(begun.ok());
  std::promise<void> done;  // behind the rest
  next->Write({.instance = begun->instance, .epoch = begun->epoch, .verdict = std::nullopt},
              [&done] { done.set_value(); });
  REQUIRE(done.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK_FALSE(std::filesystem::exists(run_dir("long_ago")));
  CHECK_FALSE(std::filesystem::exists(run_dir("left")));
  for (const char* name : {"living", "just_now", "next"}) {
    CHECK(std::filesystem::exists(run_dir(name) + "/job"));
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
