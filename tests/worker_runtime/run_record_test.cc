#include "ddp/run_record.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/fsync_hook.h"

namespace ddp {
namespace {

using ddprun::testing::Json;
using ddprun::testing::ParseJson;
using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;
using ddprun::testing::WriteFile;

TEST_CASE("run record: is JSON with every field, unknown ones null") {
  RunRecord record;
  record.versions = {{"ddprun", "0.1.0"}, {"nccl", ""}};
  record.cpu = "AMD \"EPYC\"";
  record.cpus = 2;
  record.device = "cpu";
  record.backend = "shm";
  record.why = "shm: all ranks share a host";
  record.world_size = 4;
  record.data = {{"digits/a\\b", 7, "00ff"}, {"c", 0, "01"}};
  record.arguments = {"train", "a\tb\nc\xff"};
  record.environment = {{"OMP_NUM_THREADS", "1"}};
  CHECK(ToJson(record) == R"({
  "outcome": "running",
  "error": null,
  "started_at": null,
  "ended_at": null,
  "versions": {"ddprun": "0.1.0", "nccl": null},
  "host": null,
  "cpu": "AMD \"EPYC\"",
  "cpus": 2,
  "device": "cpu",
  "backend": "shm",
  "why": "shm: all ranks share a host",
  "world_size": 4,
  "local_world_size": 1,
  "restart_count": 0,
  "data": [{"path": "digits/a\\b", "bytes": 7, "xxh3": "00ff"}, {"path": "c", "bytes": 0, "xxh3": "01"}],
  "arguments": ["train", "a\tb\\nc\\xff"],
  "environment": {"OMP_NUM_THREADS": "1"}
}
)");
}

TEST_CASE("run record: ends as ok, stopped or failed with the error") {
  RunRecord record;
  record.End(absl::OkStatus(), false);
  CHECK(record.outcome == RunOutcome::kOk);
  CHECK(record.ended_at.size() == 20);
  record.End(absl::OkStatus(), true);
  CHECK(ToJson(record) == Contains("\"outcome\": \"stopped\""));
  record.End(absl::UnavailableError("rank 1 left"), true);
  CHECK(ToJson(record) == Contains("\"outcome\": \"failed\",\n  \"error\": \"rank 1 left\""));
}

TEST_CASE("run record: a group of one tells versions, machine and backend, and keeps secrets") {
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("DDPRUN_TEST_TOKEN", "abc123", 1);
  ::setenv("HOME_OF_OTHERS", "abc123", 1);
  ::unsetenv("RANK");
  auto group = ProcessGroup::FromEnv({});
  REQUIRE(group.ok());
  const std::string text = ToJson(MakeRunRecord(**group, {"train", "--hf_token", "abc123"}));
  CHECK(text != Contains("abc123"));
  CHECK(text != Contains("HOME_OF_OTHERS"));
  CHECK(text == Contains(R"("arguments": ["train", "--hf_token", "set"])"));
  const std::optional<Json> json = ParseJson(text);
  REQUIRE_MESSAGE(json, text);
  CHECK(json->get<std::string>("environment.NCCL_DEBUG") == "INFO");
  CHECK(json->get<std::string>("environment.DDPRUN_TEST_TOKEN") == "set");
  CHECK(json->get<std::string>("versions.ddprun") == "0.1.0");
  CHECK(json->get<std::string>("versions.kernel").find("Linux ") == 0);
  CHECK(json->get<std::string>("versions.compiler") != "");
  CHECK(json->get<std::string>("device") == "cpu");
  CHECK(json->get<std::string>("backend") == "local");
  CHECK(json->get<std::string>("why") == (*group)->description());
  CHECK(json->get<int>("cpus") >= 1);
}

TEST_CASE("run record: a data file has its size and the hash that xxhsum tells") {
  TempDir dir;
  WriteFile(dir.File("empty"), "");
  const absl::StatusOr<DataFile> empty = DescribeDataFile(dir.File("empty"));
  REQUIRE(empty.ok());
  CHECK(empty->bytes == 0);
  CHECK(empty->xxh3 == "2d06800538d394c2");
  WriteFile(dir.File("large"), std::string(3'000'000, 'x'));
  const absl::StatusOr<DataFile> large = DescribeDataFile(dir.File("large"));
  REQUIRE(large.ok());
  CHECK(large->bytes == 3'000'000);
  CHECK(large->path == dir.File("large"));
  CHECK(large->xxh3 != empty->xxh3);
  REQUIRE(::mkfifo(dir.File("pipe").c_str(), 0600) == 0);
  const absl::StatusOr<DataFile> pipe = DescribeDataFile(dir.File("pipe"));
  REQUIRE(pipe.ok());
  CHECK(pipe->xxh3 == "");
  const absl::Status missing = DescribeDataFile(dir.File("none")).status();
  CHECK(missing.message() == "open \"" + dir.File("none") + "\": No such file or directory");
}

TEST_CASE("run record: the file is replaced as a whole, and nothing else is left") {
  TempDir dir;
  WriteFile(dir.File("run.json"), "of an earlier run");
  RunRecordFile file(dir.path().string());
  RunRecord record;
  REQUIRE(file.Write(record).ok());
  CHECK(ReadFile(dir.File("run.json")) == ToJson(record));
  record.End(absl::OkStatus(), false);
  REQUIRE(file.Write(record).ok());
  CHECK(ReadFile(dir.File("run.json")) == ToJson(record));
  std::filesystem::remove(dir.File("run.json"));
  CHECK(file.Write(record).ok());
  const std::filesystem::directory_iterator files(dir.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("run record: what a run that was killed while it wrote has left goes with the next one") {
  const TempDir dir;
  WriteFile(dir.File(".run.json.tmp-12345"), "{");
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(dir.File(".run.json.tmp-12345"), now - std::chrono::hours(1));
  WriteFile(dir.File(".run.json.tmp-12346"), "{");  // of a run that is writing now
  WriteFile(dir.File(".mine"), "stays");
  CHECK(RunRecordFile(dir.path()).Write(RunRecord()).ok());
  CHECK_FALSE(std::filesystem::exists(dir.File(".run.json.tmp-12345")));
  CHECK(std::filesystem::exists(dir.File(".run.json.tmp-12346")));
  CHECK(std::filesystem::exists(dir.File(".mine")));
}

TEST_CASE("run record: a later run's record is not written over by an earlier run's end") {
  TempDir dir;
  RunRecordFile earlier(dir.path().string()), later(dir.path().string());
  RunRecord record;
  REQUIRE(earlier.Write(record).ok());
  record.restart_count = 1;
  REQUIRE(later.Write(record).ok());
  record.End(absl::UnavailableError("cut off"), false);
  const absl::Status status = earlier.Write(record);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == Contains("another run has written there"));
  CHECK(ReadFile(dir.File("run.json")) == Contains("\"running\""));
}

TEST_CASE("run record: another rank ends the record of one that was killed") {
  const TempDir dir;
  RunRecordFile first(dir.path().string()), other(dir.path().string());
  RunRecord record;
  record.started_at = "2026-01-31T08:00:00Z";
  record.arguments = {"train", "\"outcome\": \"running\""};
  other.Adopt(ToJson(record));
  REQUIRE(first.Write(record).ok());
  REQUIRE(other.WriteEnd(RunOutcome::kFailed, "rank 0 \"left\"\n").ok());
  const std::string text = ReadFile(dir.File("run.json"));
  RunRecord failed = record;
  failed.End(absl::UnavailableError("rank 0 \"left\"\n"), false);
  failed.ended_at = ParseJson(text)->get<std::string>("ended_at");
  CHECK(failed.ended_at.size() == 20);
  CHECK(text == ToJson(failed));
}

TEST_CASE("run record: an end that was written stays, but for the word of who began it") {
  const TempDir dir;
  RunRecordFile first(dir.path().string()), other(dir.path().string()), late(dir.path().string());
  RunRecord record;
  REQUIRE(first.Write(record).ok());
  other.Adopt(ToJson(record));
  late.Adopt(ToJson(record));
  REQUIRE(other.WriteEnd(RunOutcome::kFailed, "rank 2 left").ok());
  REQUIRE(late.WriteEnd(RunOutcome::kFailed, "rank 1 left").ok());
  CHECK(ReadFile(dir.File("run.json")) == Contains("\"rank 2 left\""));
  record.End(absl::OkStatus(), true);
  REQUIRE(first.Write(record).ok());
  CHECK(ReadFile(dir.File("run.json")) == Contains("\"outcome\": \"stopped\""));
  REQUIRE(first.WriteEnd(RunOutcome::kFailed, "too late").ok());
  CHECK(ReadFile(dir.File("run.json")) == ToJson(record));
}

TEST_CASE("run record: what an earlier run has left is not ended by a rank of a run elsewhere") {
  const TempDir dir;
  RunRecord earlier, record;
  earlier.started_at = "2026-01-24T08:00:00Z";
  record.started_at = "2026-01-31T08:00:00Z";
  REQUIRE(RunRecordFile(dir.path()).Write(earlier).ok());
  RunRecordFile other(dir.path());
  other.Adopt(ToJson(record));
  CHECK(other.WriteEnd(RunOutcome::kFailed, "rank 0 left").ok());
  CHECK(ReadFile(dir.File("run.json")) == ToJson(earlier));
}

TEST_CASE("run record: a later run's record is not ended by another rank of an earlier run") {
  const TempDir dir;
  RunRecordFile earlier(dir.path().string()), rank1(dir.path().string());
  RunRecord record;
  REQUIRE(earlier.Write(record).ok());
  rank1.Adopt(ToJson(record));
  record.restart_count = 1;
  REQUIRE(RunRecordFile(dir.path().string()).Write(record).ok());
  REQUIRE(rank1.WriteEnd(RunOutcome::kFailed, "rank 0 left").ok());
  CHECK(ReadFile(dir.File("run.json")) == ToJson(record));
  std::filesystem::remove(dir.File("run.json"));
  REQUIRE(rank1.WriteEnd(RunOutcome::kFailed, "rank 0 left").ok());
  CHECK_FALSE(std::filesystem::exists(dir.File("run.json")));
}

// Done once, while the next file is on its way to the disk.
void DuringWrite(const std::function<void()>& act) {
  OnFsync() = [act](const std::string&) {
    OnFsync() = nullptr;
    act();
  };
}

TEST_CASE("run record: what somebody has written while another word was on its way stays") {
  const TempDir dir;
  RunRecordFile first(dir.path().string()), other(dir.path().string());
  RunRecord record;
  REQUIRE(first.Write(record).ok());
  other.Adopt(ToJson(record));
  RunRecord ended = record;
  ended.End(absl::OkStatus(), false);
  DuringWrite([&] { CHECK(first.Write(ended).ok()); });
  CHECK(other.WriteEnd(RunOutcome::kFailed, "rank 0 left").ok());
  CHECK(ReadFile(dir.File("run.json")) == ToJson(ended));
  RunRecord next = record;
  next.restart_count = 1;
  DuringWrite([&] { CHECK(RunRecordFile(dir.path()).Write(next).ok()); });
  CHECK(absl::IsFailedPrecondition(first.Write(record)));
  CHECK(ReadFile(dir.File("run.json")) == ToJson(next));
}

TEST_CASE("run record: two that write at one time, alike in host and process id, both can") {
  const TempDir dir;
  RunRecord inner, outer;
  outer.restart_count = 1;
  DuringWrite([&] { CHECK(RunRecordFile(dir.path()).Write(inner).ok()); });
  const absl::Status status = RunRecordFile(dir.path()).Write(outer);
  CHECK_MESSAGE(status.ok(), std::string(status.message()));
  CHECK(ReadFile(dir.File("run.json")) == ToJson(outer));
  const std::filesystem::directory_iterator files(dir.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("run record: what cannot be written is named") {
  TempDir dir;
  RunRecordFile nowhere(dir.File("none"));
  const std::string message(nowhere.Write({}).message());
  CHECK(message.find("create \"" + dir.File("none/run.json") + "\": ") == 0);
  CHECK(message == Contains("No such file or directory"));
  std::filesystem::create_directories(dir.File("run.json/x"));
  RunRecordFile taken(dir.path().string());
  CHECK(taken.Write({}).message() == Contains("run.json\": Is a directory"));
  const std::filesystem::directory_iterator files(dir.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

}  // namespace
}  // namespace ddp
