// The real ddprun on one node: exit codes, restarts, signals, leftovers.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

std::multiset<std::string> Lines(const std::string& text) {
  std::multiset<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

TEST_CASE("one node: each worker gets its rank, and success is silent") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=4"}, {"print:rank {rank}"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(Lines(ddprun->out()) == std::multiset<std::string>{"rank 0", "rank 1", "rank 2", "rank 3"});
  CHECK(ddprun->err() != Contains("error"));
}

TEST_CASE("one node: the environment is torchrun's") {
  Job job;
  auto ddprun =
      job.Run({"--standalone", "--nproc-per-node=2", "--max-restarts=3"},
              {"env:RANK@1", "env:LOCAL_RANK@1", "env:WORLD_SIZE@1", "env:LOCAL_WORLD_SIZE@1",
               "env:GROUP_RANK@1", "env:GROUP_WORLD_SIZE@1", "env:ROLE_NAME@1", "env:ROLE_RANK@1",
               "env:ROLE_WORLD_SIZE@1", "env:MASTER_ADDR@1", "env:TORCHELASTIC_RESTART_COUNT@1",
               "env:TORCHELASTIC_MAX_RESTARTS@1", "env:TORCHELASTIC_USE_AGENT_STORE@1",
               "env:OMP_NUM_THREADS@1"},
              {.env = {{"OMP_NUM_THREADS", ""}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(Lines(ddprun->out()) ==
        std::multiset<std::string>{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
                                   "GROUP_RANK=0", "GROUP_WORLD_SIZE=1", "ROLE_NAME=default",
                                   "ROLE_RANK=1", "ROLE_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                   "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=3",
                                   "TORCHELASTIC_USE_AGENT_STORE=True", "OMP_NUM_THREADS=1"});
}

TEST_CASE(
    "one node: a worker's exit code is ddprun's own, also where ddprun means something by it") {
  // All 256 are decoded in tests/launcher/process.
  for (const int code : {0, 1, 2, 77, 120, 121, 127, 128, 137, 255}) {
    Job job;
    auto ddprun = job.Run({"--nproc-per-node=1"}, {"exit:" + std::to_string(code)});
    REQUIRE_MESSAGE(ddprun->Wait() == code, "worker's exit code ", code, ddprun->Describe());
  }
}

TEST_CASE("one node: a worker's signal becomes 128 + n, and the report names it") {
  for (const int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGTERM}) {
    Job job;
    auto ddprun = job.Run({"--nproc-per-node=3"},
                          {"err:last words@1", "die:" + std::to_string(signal) + "@1", "wait"});
    REQUIRE_MESSAGE(ddprun->Wait() == 128 + signal, ddprun->Describe());
    CHECK(ddprun->err() == Contains("rank      : 1"));
    CHECK(ddprun->err() == Contains("last words"));
    CHECK(job.IsGone());
  }
}

// Rank 0 leaves a process in a session of its own and one in its own group; both write when a file
// is there.
constexpr char kLeaving[] = R"(cd "$1"
[ $RANK = 0 ] || exit 0
setsid sh -c 'echo > up1; until [ -e go ]; do sleep 0.01; done; echo > saved1' &
sh -c 'echo > up2; until [ -e go ]; do sleep 0.01; done; echo > saved2' &
until [ -e up1 ] && [ -e up2 ]; do sleep 0.01; done)";

TEST_CASE("one node: what a worker leaves after its success goes on with --keep_children") {
  Job job;
  auto ddprun = job.RunRaw({"--standalone", "--nproc-per-node=2", "--keep-children=600", "/bin/sh",
                            "-c", kLeaving, "sh", job.File("")});
  REQUIRE(ddprun->WaitForErr("--keep-children"));
  CHECK(ddprun->err() == Contains("rank 0 has ended and left "));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(job.HasFile("saved1"));
  CHECK(job.HasFile("saved2"));
}

TEST_CASE("one node: a signal ends the wait of --keep_children, and the exit code stays 0") {
  Job job;
  auto ddprun = job.RunRaw({"--standalone", "--nproc-per-node=2", "--keep-children=600", "/bin/sh",
                            "-c", kLeaving, "sh", job.File("")});
  REQUIRE(ddprun->WaitForErr("the job has succeeded, waiting for what its workers left"));
  ddprun->Signal(SIGTERM);
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("SIGTERM: stopping what the workers left"));
  CHECK(job.IsGone());
  CHECK_FALSE(job.HasFile("saved1"));
}

TEST_CASE("one node: without --keep_children it is ended, and told of") {
  Job job;
  auto ddprun = job.RunRaw(
      {"--standalone", "--nproc-per-node=2", "/bin/sh", "-c", kLeaving, "sh", job.File("")});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("rank 0 has ended and left "));
  CHECK(ddprun->err() == Contains("--keep-children=SECONDS"));
  job.Touch("go");
  CHECK(job.IsGone());
  CHECK_FALSE(job.HasFile("saved1"));
}

TEST_CASE("one node: --keep_children keeps nothing after a failure") {
  Job job;
  auto ddprun = job.RunRaw({"--standalone", "--nproc-per-node=2", "--keep-children=600", "/bin/sh",
                            "-c", std::string(kLeaving) + "\nexit 3", "sh", job.File("")});
  CHECK_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ddprun->err() != Contains("keep_children"));
  CHECK(job.IsGone());
}

TEST_CASE("one node: a failure stops the others at once, not when they end by themselves") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=4"}, {"exit:7@2", "wait"});
  REQUIRE_MESSAGE(ddprun->Wait() == 7, ddprun->Describe());
}

TEST_CASE("one node: a group restarts after a worker that had to be killed") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--max-restarts=2", "--shutdown-timeout=1"},
                        {"print:rank {rank} restart {restart}", "ignore:15@0",
                         "touch:" + job.File("up{rank}.{restart}"),
                         "until:" + job.File("up0.{restart}"), "exit:5@1#0", "wait@0#0"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("did not end within"));
  CHECK(Lines(ddprun->out()) == std::multiset<std::string>{"rank 0 restart 0", "rank 1 restart 0",
                                                           "rank 0 restart 1", "rank 1 restart 1"});
}

TEST_CASE("one node: a killed worker restarts the whole group once") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--max-restarts=1"},
                        {"print:rank {rank} restart {restart}", "touch:" + job.File("up{rank}"),
                         "until:" + job.File("up0") + "@1", "die:9@1#0", "wait#0"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(Lines(ddprun->out()) == std::multiset<std::string>{"rank 0 restart 0", "rank 1 restart 0",
                                                           "rank 0 restart 1", "rank 1 restart 1"});
}

TEST_CASE("one node: the budget is kept to") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--max-restarts=2"},
                        {"print:rank {rank} restart {restart}", "exit:5@0", "wait"});
  REQUIRE_MESSAGE(ddprun->Wait() == 5, ddprun->Describe());
  CHECK(ddprun->out() == Contains("rank 0 restart 2"));
  CHECK(ddprun->out() != Contains("restart 3"));
}

TEST_CASE("one node: a rank that exits 0 early lets the others go on, and leaves them the store") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2"},
                        {"exit:0@0", "until:" + job.File("go"), "connect", "print:went on"},
                        {.env = {{"DDPRUN_LOG_LEVEL", "info"}}});
  REQUIRE_MESSAGE(ddprun->WaitForErr(" worker ended run="), ddprun->Describe());
  CHECK(ddprun->err() == Contains(" rank=0 "));
  job.Touch("go");
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == "connected\nwent on\n");
}

// SIGABRT is what a failed check of its own does.
TEST_CASE(
    "one node: a SIGKILL or an abort of ddprun leaves nothing, grandchildren of other sessions "
    "included") {
  int signal = 0;
  SUBCASE("SIGKILL") { signal = SIGKILL; }
  SUBCASE("SIGABRT") { signal = SIGABRT; }
  Job job;
  auto ddprun =
      job.Run({"--nproc-per-node=2"}, {"grandchild", "touch:" + job.File("up{rank}"), "wait"});
  REQUIRE(job.WaitForFile("up0"));
  REQUIRE(job.WaitForFile("up1"));
  CHECK(job.Processes().size() >= 5);
  ddprun->Signal(signal);
  CHECK(ddprun->Wait() == 128 + signal);
  CHECK(job.IsGone());
}

TEST_CASE("one node: a SIGKILL of ddprun leaves no folders, but for one with logs") {
  for (const bool has_logs : {false, true}) {
    CAPTURE(has_logs);
    Job job;
    const std::filesystem::path temp = job.File("temp");
    std::filesystem::create_directory(temp);
    std::vector<std::string> options = {"--nproc-per-node=2"};
    if (has_logs) options.push_back("--tee=2");
    auto ddprun = job.Run(
        options,
        {R"(error-file:{"message": "last words"}@1)", "touch:" + job.File("up{rank}"), "wait"},
        {.env = {{"TMPDIR", temp.string()}}});
    REQUIRE(job.WaitForFile("up0"));
    REQUIRE(job.WaitForFile("up1"));
    CHECK_FALSE(std::filesystem::is_empty(temp));
    ddprun->Signal(SIGKILL);
    CHECK(ddprun->Wait() == 137);
    REQUIRE(job.IsGone(std::chrono::seconds(60)));  // the guardian too
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temp)) {
      left.insert(entry.path().filename().string());
    }
    CHECK(left.empty() == !has_logs);
    CHECK(left.contains("error.json") == has_logs);
    CHECK(left.contains("stderr.log") == has_logs);
  }
}

TEST_CASE("one node: grandchildren of other sessions end with a job that ends by itself") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2"}, {"grandchild"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(job.IsGone());
}

TEST_CASE("one node: SIGTERM and SIGINT while running stop the workers and end with 128 + n") {
  for (const int signal : {SIGTERM, SIGINT}) {
    Job job;
    auto ddprun = job.Run({"--nproc-per-node=2"}, {"touch:" + job.File("up{rank}"), "wait"});
    REQUIRE(job.WaitForFile("up0"));
    REQUIRE(job.WaitForFile("up1"));
    ddprun->Signal(signal);
    REQUIRE_MESSAGE(ddprun->Wait() == 128 + signal, ddprun->Describe());
    CHECK(job.IsGone());
  }
}

TEST_CASE("one node: workers that ignore SIGTERM are killed after the shutdown timeout") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--shutdown-timeout=1"},
                        {"ignore:15", "touch:" + job.File("up{rank}"), "until:" + job.File("up1"),
                         "exit:4@0", "wait"});
  REQUIRE_MESSAGE(ddprun->Wait() == 4, ddprun->Describe());
}

TEST_CASE("one node: a signal between the first and the last spawn stops what was started") {
  Job job(kGatedDdprun);
  auto ddprun = job.Run({"--nproc-per-node=4"}, {"touch:" + job.File("up{rank}"), "wait"},
                        {.env = {{kSpawnGate, job.File("never")}}});
  REQUIRE(job.WaitForFile("up0"));
  ddprun->Signal(SIGTERM);
  REQUIRE_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
  CHECK_FALSE(job.HasFile("up1"));
  CHECK(job.IsGone());
}

TEST_CASE("one node: SIGTERM to the job's processes is a stop, not a failure") {
  // Slurm's scancel and kill of a process group reach workers and agent in any order.
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=1", "--max-restarts=3"},
                        {"touch:" + job.File("up{restart}"), "signal-agent:15", "die:15"});
  REQUIRE_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
  CHECK_FALSE(job.HasFile("up1"));
}

TEST_CASE("one node: a stopped worker is stopped like any other") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2"}, {"touch:" + job.File("up{rank}"), "die:19@1",
                                                 "until:" + job.File("go"), "exit:6@0", "wait"});
  REQUIRE(job.WaitForFile("up1"));
  job.Touch("go");
  REQUIRE_MESSAGE(ddprun->Wait() == 6, ddprun->Describe());
}

TEST_CASE("one node: a worker that cannot be started is named, not those that were killed for it") {
  Job job(kGatedDdprun);
  // The script removes itself, so that the second spawn finds nothing.
  const std::string script = job.File("once");
  { std::ofstream(script) << "#!/bin/sh\nrm \"$0\"\ntouch " << job.File("up") << "\nsleep 100\n"; }
  REQUIRE(chmod(script.c_str(), 0755) == 0);
  auto ddprun = job.RunRaw({"--nproc-per-node=2", script}, {.env = {{kSpawnGate, job.File("up")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 127, ddprun->Describe());
  CHECK(ddprun->err() == Contains("spawn rank 1"));
  CHECK(ddprun->err() == Contains("No such file"));
}

TEST_CASE("one node: the report reaches a reader that is slow") {
  Job job;
  std::vector<std::string> steps(400, "err:" + std::string(2000, 'x'));
  steps.push_back("exit:3");
  auto ddprun = job.Run({"--nproc-per-node=1"}, steps, {.is_late = true});
  // lower bound: far more than a pipe holds is waiting by the time somebody reads
  CHECK_FALSE(ddprun->Wait(std::chrono::milliseconds(500)).has_value());
  ddprun->BeginReading();
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ddprun->err() == Contains("exit code 3: that of rank 0"));
}

TEST_CASE("one node: 64 workers") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=64"}, {"print:{rank}"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(Lines(ddprun->out()).size() == 64);
}

}  // namespace
}  // namespace ddprun::testing
