#include "launcher/logs/run_folder.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/process/owner_tag.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

size_t EntriesOf(const fs::path& path) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

TEST_CASE("run folder: one for each attempt and worker, a further round is numbered") {
  const testing::TempDir dir;
  auto folder = RunFolder::Create({.log_dir = dir.File("a/b/logs"), .run_id = "job1"});
  REQUIRE(folder.ok());
  CHECK(folder->path().rfind(dir.File("a/b/logs") + "/job1_", 0) == 0);
  struct stat status;
  REQUIRE(stat(dir.File("a").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);

  const std::vector<std::pair<int, std::string>> rounds = {
      {0, "attempt_0"}, {0, "attempt_0.1"}, {1, "attempt_1"}, {0, "attempt_0.2"}};
  for (const auto& [count, name] : rounds) {
    folder->BeginAttempt(count);
    for (const int local_rank : {0, 11}) {
      const auto worker = folder->MakeWorkerFolder(local_rank);
      REQUIRE(worker.ok());
      CHECK(*worker == folder->path() + "/" + name + "/" + std::to_string(local_rank));
      CHECK(fs::is_directory(*worker));
    }
  }
  folder->RemoveTemporaries();
  CHECK(fs::is_directory(folder->path()));  // the user asked for it
}

TEST_CASE("run folder: the run id cannot lead out of the log directory") {
  const testing::TempDir dir;
  for (const std::string id : {"../../etc", "..", "/abs", "a/b", "", ".hidden", "a\nb \xff"}) {
    const auto folder = RunFolder::Create({.log_dir = dir.path().string(), .run_id = id});
    CAPTURE(id);
    REQUIRE(folder.ok());
    CHECK(fs::path(folder->path()).parent_path() == dir.path());
  }
  const auto folder =
      RunFolder::Create({.log_dir = dir.path().string(), .run_id = std::string(4000, 'x')});
  CHECK(folder.ok());
}

TEST_CASE("run folder: a log directory that cannot be written to is known at once") {
  const testing::TempDir dir;
  std::ofstream(dir.File("file")) << "x";
  const std::vector<std::string> bad = {dir.File("file"), dir.File("file") + "/below",
                                        "/proc/no/such", "/proc",
                                        dir.path().string() + "/" + std::string(4100, 'x')};
  for (const std::string& log_dir : bad) {
    const auto folder = RunFolder::Create({.log_dir = log_dir, .run_id = "j"});
    CAPTURE(log_dir);
    CHECK_FALSE(folder.ok());
  }
}

TEST_CASE("run folder: without a log directory one is made when needed and removed when empty") {
  const testing::TempDir dir;
  auto folder = RunFolder::Create({.log_dir = "", .run_id = "j", .temp_dir = dir.path().string()});
  REQUIRE(folder.ok());
  CHECK(EntriesOf(dir.path()) == 0);
  folder->BeginAttempt(0);
  const auto first = folder->MakeWorkerFolder(0);
  const auto second = folder->MakeWorkerFolder(1);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(EntriesOf(dir.path()) == 1);

  SUBCASE("empty") {
    folder->RemoveTemporaries();
    CHECK(EntriesOf(dir.path()) == 0);
  }
  SUBCASE("with a log in it") {
    std::ofstream(*second + "/stderr.log") << "x";
    folder->RemoveTemporaries();
    CHECK_FALSE(fs::exists(*first));
    CHECK(fs::exists(*second + "/stderr.log"));
  }
}

TEST_CASE("run folder: memory without room gives way to the temporary directory") {
  const testing::TempDir dir;
  const testing::TempDir memory;
  std::string place = "/proc";  // nothing can be made there
  SUBCASE("none at all") {}
  SUBCASE("full") {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        mount("none", memory.path().c_str(), "tmpfs", 0, "size=512k") != 0) {
      return testing::SkipTest("a mount is not permitted here");
    }
    place = memory.path().string();
  }
  auto folder =
      RunFolder::Create({.run_id = "j", .temp_dir = dir.path().string(), .memory_dir = place});
  REQUIRE(folder.ok());
  folder->BeginAttempt(0);
  CHECK(folder->MakeWorkerFolder(0).value().rfind(dir.path().string() + "/ddprun_j_", 0) == 0);
  umount2(memory.path().c_str(), MNT_DETACH);
}

TEST_CASE("run folder: where TMPDIR cannot be used another folder is, or both are named") {
  const testing::TempDir dir;
  const std::string last = dir.path().string();
  auto folder = RunFolder::Create({.run_id = "j", .temp_dir = "/no/such", .last_dir = last});
  REQUIRE(folder.ok());
  folder->BeginAttempt(0);
  CHECK(folder->MakeWorkerFolder(0).value().starts_with(last + "/ddprun_j_"));

  auto nowhere = RunFolder::Create({.run_id = "j", .temp_dir = "/no/such", .last_dir = "/none"});
  REQUIRE(nowhere.ok());
  nowhere->BeginAttempt(0);
  const std::string message(nowhere->MakeWorkerFolder(0).status().message());
  for (const char* part :
       {"/no/such: ", "/none: ", "(TMPDIR or --log-dir may name another folder)"}) {
    CHECK(message == Contains(part));
  }
}

TEST_CASE("run folder: memory that is mapped is nowhere else, and is shared with the error files") {
  const testing::TempDir temp;
  const testing::TempDir memory;
  const std::string below = memory.path().string() + "/ddprun_j_";
  RunFolder::Options options{.run_id = "j",
                             .temp_dir = temp.path().string(),
                             .memory_dir = temp.path().string(),
                             .shared_memory_dir = memory.path().string()};
  SUBCASE("error files elsewhere") {
    auto folder = RunFolder::Create(options);
    REQUIRE(folder.ok());
    CHECK(folder->MemoryFolder().value().rfind(below, 0) == 0);
    CHECK(folder->MemoryFolder().value() == folder->MemoryFolder().value());
    CHECK(EntriesOf(temp.path()) == 0);
    folder->RemoveTemporaries();
    CHECK(EntriesOf(memory.path()) == 0);
  }
  SUBCASE("error files there, too") {
    options.memory_dir = options.shared_memory_dir;
    auto folder = RunFolder::Create(options);
    REQUIRE(folder.ok());
    folder->BeginAttempt(0);
    REQUIRE(folder->MakeWorkerFolder(0).ok());
    CHECK(folder->MemoryFolder().value() == folder->path());
  }
  SUBCASE("it cannot be made") {
    options.shared_memory_dir = "/proc";
    auto folder = RunFolder::Create(options);
    REQUIRE(folder.ok());
    CHECK_FALSE(folder->MemoryFolder().ok());
    CHECK(EntriesOf(temp.path()) == 0);
  }
}

TEST_CASE("run folder: one that somebody has removed is made anew for the next round") {
  const testing::TempDir dir;
  auto folder = RunFolder::Create({.run_id = "j", .memory_dir = dir.path().string()});
  REQUIRE(folder.ok());
  folder->BeginAttempt(0);
  REQUIRE(folder->MakeWorkerFolder(0).ok());
  fs::remove_all(folder->path());

  folder->BeginAttempt(1);
  CHECK(fs::exists(folder->MakeWorkerFolder(0).value()));
  CHECK(fs::exists(folder->MakeWorkerFolder(1).value()));
  CHECK(EntriesOf(dir.path()) == 1);
}

TEST_CASE("run folder: one for error files alone goes with them, one with log files stays") {
  for (const bool has_logs : {false, true}) {
    const testing::TempDir dir;
    auto folder = RunFolder::Create({.run_id = "j", .temp_dir = dir.path().string()});
    REQUIRE(folder.ok());
    for (const int attempt : {0, 1}) {
      folder->BeginAttempt(attempt);
      for (const int worker : {0, 1}) {
        const auto made = folder->MakeWorkerFolder(worker);
        REQUIRE(made.ok());
        std::ofstream(*made + "/error.json") << "{}";
        if (has_logs && worker == 1) std::ofstream(*made + "/stderr.log") << "x";
      }
    }
    const std::string path = folder->path();
    folder->RemoveTemporaries();
    CHECK(fs::exists(path) == has_logs);
    CHECK(fs::exists(path + "/attempt_1/0/error.json") == has_logs);
  }
}

TEST_CASE("run folder: what killed runs left is removed as far as no log is in it") {
  const testing::TempDir dir;
  const std::string gone = OwnerTag(INT_MAX);  // no process has this pid
  const std::string empty = dir.File("ddprun_a_b_" + gone + "_abcdef");
  const std::string with_errors = dir.File("ddprun_b_" + gone + "_abcdef");
  const std::string with_log = dir.File("ddprun_none_" + gone + "_abcdef");
  const std::string untagged = dir.File("ddprun_none_abcdef");
  const std::string others = dir.File("other_none_" + gone + "_abcdef");
  for (const std::string& folder : {empty, with_errors, with_log, untagged, others}) {
    fs::create_directories(folder + "/attempt_0/0");
  }
  for (const std::string& folder : {with_errors, with_log, untagged, others}) {
    std::ofstream(folder + "/attempt_0/0/error.json") << "{}";
  }
  std::ofstream(with_log + "/attempt_0/0/stderr.log") << "x";
  std::ofstream(empty + "/stop_request") << "x";
  const auto make = [&] {
    auto folder = RunFolder::Create({.run_id = "j", .memory_dir = dir.path().string()});
    REQUIRE(folder.ok());
    folder->BeginAttempt(0);
    REQUIRE(folder->MakeWorkerFolder(0).ok());
    return *std::move(folder);
  };
  const RunFolder living = make();
  const RunFolder own = make();

  own.RemoveAbandonedTemporaries();

  CHECK_FALSE(fs::exists(empty));
  CHECK_FALSE(fs::exists(with_errors));
  CHECK(fs::exists(with_log + "/attempt_0/0/error.json"));
  CHECK(fs::exists(untagged + "/attempt_0/0"));
  CHECK(fs::exists(others + "/attempt_0/0"));
  CHECK(fs::exists(living.attempt_path() + "/0"));
  CHECK(fs::exists(own.attempt_path() + "/0"));
}

TEST_CASE("run folder: what others have given such a name is left alone") {
  const testing::TempDir dir;
  const std::string gone = OwnerTag(INT_MAX);
  const std::string target = dir.File("target");
  fs::create_directories(target + "/attempt_0/0");
  const std::string link = dir.File("ddprun_a_b_" + gone + "_others");
  fs::create_directory_symlink(target, link);
  const std::string fifo = dir.File("ddprun_a_b_" + gone + "_fifofi");
  REQUIRE(mkfifo(fifo.c_str(), 0666) == 0);
  const std::string foreign = dir.File("ddprun_a_b_" + gone + "_foreig");
  fs::create_directories(foreign);
  const bool is_foreign = geteuid() == 0 && chown(foreign.c_str(), 65534, 65534) == 0;
  auto own = RunFolder::Create({.run_id = "j", .memory_dir = dir.path().string()});
  REQUIRE(own.ok());
  own->BeginAttempt(0);
  REQUIRE(own->MakeWorkerFolder(0).ok());

  own->RemoveAbandonedTemporaries();

  CHECK(fs::is_symlink(link));
  CHECK(fs::exists(target + "/attempt_0/0"));
  CHECK(fs::is_fifo(fifo));
  CHECK(fs::exists(foreign) == is_foreign);  // one of our own would be removed
}

TEST_CASE("run folder: /dev/null means no files at all") {
  auto folder = RunFolder::Create({.log_dir = "/dev/null", .run_id = "j"});
  REQUIRE(folder.ok());
  folder->BeginAttempt(0);
  CHECK(folder->MakeWorkerFolder(0).value() == "");
  CHECK(folder->path() == "");
}

}  // namespace
}  // namespace ddprun::launcher
