#include "launcher/dump/dump_folder.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "rendezvous/base/steady_clock.h"
#include "tests/launcher/dump/dump_testing.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

// A tool that tells of the process it is asked for, as eu-stack would, without ptrace.
constexpr char kToldStack[] =
    "for pid; do :; done\n"  // the last argument
    "echo \"TID $pid:\"\n"
    "echo '#0  0x1 pause'\n"
    "echo '#1  0x2 train_step'\n";

DumpRequest RequestFor(const std::string& folder, std::vector<DumpProcess> processes,
                       const StackTools& tools) {
  return {.folder = folder,
          .run_id = "run",
          .host = "node1",
          .processes = std::move(processes),
          .tools = tools,
          .deadline = SteadyNow() + 60s};
}

int ModeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 0777) : -1;
}

TEST_CASE("dump: a folder with a file for each thing that is known") {
  const TempDir temp;
  const StackTools tools = FakeTool(temp.path(), "eu-stack", kToldStack);
  std::vector<std::unique_ptr<Subprocess>> programs;
  std::vector<DumpProcess> processes;
  for (int rank = 5; rank >= 0; --rank) {
    programs.push_back(StartStuck(rank == 1 ? "lock" : "asleep"));
    processes.push_back({.rank = rank, .local_rank = rank, .pid = programs.back()->pid()});
  }
  programs[2]->Signal(SIGKILL);  // rank 3
  programs[2]->Wait();
  const std::string pid = std::to_string(programs[5]->pid());  // rank 0
  WriteFile(temp.File("ddp-flight-0-" + pid + "-0.json"), "{}");
  WriteFile(temp.File("ddp-flight-0-1" + pid + "-0.json"), "another's");
  std::filesystem::create_symlink("/etc/passwd", temp.File("ddp-flight-0-" + pid + "-1.json"));
  REQUIRE(mkfifo(temp.File("ddp-flight-0-" + pid + "-2.json").c_str(), 0600) == 0);

  const std::string folder = temp.File("dump");
  DumpRequest request = RequestFor(folder, processes, tools);
  request.flight_folder = temp.path();
  const DumpResult result = WriteDump(request);
  CHECK_MESSAGE(result.status.ok(), result.status.message());
  CHECK(result.sentence == "5 of 6 ranks (0-2, 4-5) wait in train_step; rank 3 has ended");
  CHECK(ModeOf(folder) == 0700);
  CHECK(ModeOf(folder + "/rank-1") == 0700);
  CHECK(ModeOf(folder + "/rank-1/stack.txt") == 0600);
  const std::string stack = ReadFile(folder + "/rank-1/stack.txt");
  CHECK(stack == Contains("waits in futex"));
  CHECK(stack == Contains("    train_step\n"));
  const std::string status = ReadFile(folder + "/rank-1/status.txt");
  CHECK(status == Contains("/stuck lock\n"));
  CHECK(status == Contains("== limits ==\n"));
  CHECK(ReadFile(folder + "/rank-1/environment.txt") == Contains("PATH="));
  CHECK(ReadFile(folder + "/rank-3/stack.txt") == "the process has ended\n");
  CHECK(ReadFile(folder + "/roll_call.txt").starts_with(result.sentence + "\n"));
  CHECK(ReadFile(folder + "/rank-0/ddp-flight-0-" + pid + "-0.json") == "{}");
  CHECK(std::distance(std::filesystem::directory_iterator(folder + "/rank-0"), {}) == 4);
  const auto summary = nlohmann::json::parse(ReadFile(folder + "/summary.json"));
  CHECK(summary["host"] == "node1");
  CHECK(summary["roll_call"] == result.sentence);
  REQUIRE(summary["ranks"].size() == 6);
  CHECK(summary["ranks"][1]["where"] == "in train_step");
  CHECK(summary["ranks"][3]["is_alive"] == false);
}

TEST_CASE("dump: a folder that is there, and one in no folder, are errors that name it") {
  const TempDir temp;
  const auto program = StartStuck("asleep");
  const std::vector<DumpProcess> processes = {{.rank = 0, .local_rank = 0, .pid = program->pid()}};
  const DumpResult there = WriteDump(RequestFor(temp.path(), processes, {.path = "/none"}));
  CHECK(there.status.message() == "mkdir \"" + temp.path().string() + "\": File exists");
  // What was seen is told all the same.
  CHECK(there.sentence.starts_with("rank 0 waits in clock_nanosleep"));
  const DumpResult nowhere = WriteDump(RequestFor(temp.File("a/b"), processes, {.path = "/none"}));
  const std::string why = "mkdir \"" + temp.File("a/b") + "\": No such file or directory";
  CHECK(nowhere.status.message() == why);
  CHECK(nowhere.folder.empty());

  DumpRequest request = RequestFor(temp.File("a/b"), processes, {.path = "/none"});
  request.other_places = {temp.File("no"), temp.path()};
  const DumpResult elsewhere = WriteDump(request);
  CHECK(elsewhere.status.ok());
  CHECK(elsewhere.folder == temp.File("b"));
  CHECK(elsewhere.why_there == why);
  CHECK(!ReadFile(temp.File("b/roll_call.txt")).empty());
  request.other_places = {temp.File("no")};
  const DumpResult none = WriteDump(request);
  CHECK(none.status.message() == why);  // that of the place which was asked for
  CHECK(none.folder.empty());
}

TEST_CASE("dump: no ranks make a dump without any") {
  const TempDir temp;
  const DumpResult result = WriteDump(RequestFor(temp.File("dump"), {}, {.path = "/none"}));
  CHECK(result.status.ok());
  CHECK(result.sentence == "");
  CHECK(ReadFile(temp.File("dump/roll_call.txt")) == "");
}

TEST_CASE("dump: tools that hang take the time that was given, not more") {
  const TempDir temp;
  std::vector<std::unique_ptr<Subprocess>> programs;
  std::vector<DumpProcess> processes;
  for (int rank = 0; rank < 6; ++rank) {
    programs.push_back(StartStuck("asleep"));
    processes.push_back({.rank = rank, .local_rank = rank, .pid = programs.back()->pid()});
  }
  DumpRequest request = RequestFor(temp.File("dump"), processes,
                                   FakeTool(temp.path(), "eu-stack", "exec sleep 1000\n"));
  request.deadline = SteadyNow() + 1s;
  const DumpResult result = WriteDump(request);
  CHECK(SteadyNow() < request.deadline + 30s);
  CHECK(result.status.ok());
  CHECK(result.sentence.starts_with("all 6 ranks wait in clock_nanosleep"));
}

// A file system of one page, mounted by a thread whose mounts nobody else sees.
TEST_CASE("dump: a full disk is an error that names the file") {
  if (geteuid() != 0) return SkipTest("mounting needs root");
  const TempDir temp;
  const std::string small = temp.File("small");
  std::filesystem::create_directory(small);
  const auto program = StartStuck("asleep");
  const DumpRequest request =
      RequestFor(small + "/dump", {{.rank = 0, .local_rank = 0, .pid = program->pid()}},
                 FakeTool(temp.path(), "eu-stack", kToldStack));
  bool is_mounted = false;
  DumpResult result;
  std::thread([&] {
    is_mounted = unshare(CLONE_NEWNS) == 0 &&
                 mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                 mount("none", small.c_str(), "tmpfs", 0, "size=4k") == 0;
    if (is_mounted) result = WriteDump(request);
  }).join();
  if (!is_mounted) return SkipTest("no mounts here");
  CHECK(result.sentence == "rank 0 waits in train_step");
  CHECK(result.status.message() ==
        "write \"" + small + "/dump/rank-0/status.txt\": No space left on device");
}

}  // namespace
}  // namespace ddprun::launcher
