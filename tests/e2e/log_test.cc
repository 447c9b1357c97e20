// What the real ddprun logs of itself on request, and that it is silent otherwise.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

Subprocess::Options At(const std::string& level) {
  // OMP_NUM_THREADS: ddprun has nothing to tell then.
  return {.env = {{"DDPRUN_LOG_LEVEL", level}, {"LOGLEVEL", ""}, {"OMP_NUM_THREADS", "1"}}};
}

// Looks for lines of one level, each behind the one before.
void CheckLines(const Subprocess& ddprun, const std::string& level,
                const std::vector<std::string>& patterns) {
  std::istringstream lines(ddprun.err());
  std::string line;
  for (const std::string& pattern : patterns) {
    const std::regex wanted("ddprun: " + level + ": [0-9:.]{12} " + pattern);
    bool is_found = false;
    while (!is_found && std::getline(lines, line)) is_found = std::regex_match(line, wanted);
    CHECK_MESSAGE(is_found, "no line in this place: ", pattern, "\n", ddprun.Describe());
  }
}

bool HasLogLine(const Subprocess& ddprun, const std::string& level = "[a-z]+") {
  return std::regex_search(ddprun.err(), std::regex("ddprun: " + level + ": [0-9][0-9]:"));
}

TEST_CASE("log: without being asked there is not a line") {
  for (const char* level : {"", "warn", "error", "off"}) {
    Job job;
    auto ddprun = job.Run({"--nproc-per-node=2"}, {"print:rank {rank}"}, At(level));
    REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
    CHECK_MESSAGE(ddprun->err().empty(), ddprun->Describe());
  }
}

TEST_CASE("log: info tells a job's life, with run, round, ranks and pids, on stderr alone") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--rdzv-id=job1", "--max-restarts=1"},
                        {"print:rank {rank}", "exit:3@1#0", "wait#0"}, At("info"));
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  const std::string in_round = "run=job1 round=1 ";
  CheckLines(*ddprun, "info",
             {"joining run=job1 node=\\S+ workers=2", "coordinator hosted here run=job1",
              "assigned " + in_round +
                  "epoch=[0-9]+ ranks=0-1 world_size=2 node_rank=0 nodes=1 "
                  "restart=0 store=127\\.0\\.0\\.1:[0-9]+",
              "workers started " + in_round + "ranks=0-1 pids=[0-9]+,[0-9]+",
              "worker ended " + in_round + "rank=1 pid=[0-9]+ exit_code=3 cause='exit code 3'",
              "stopping workers " + in_round + "signal=15 grace_ms=30000"});
  CheckLines(*ddprun, "info", {"draining run=job1 round=1 reason='rank 1 on node .*'"});
  CheckLines(*ddprun, "info",
             {"assigned run=job1 round=2 .* restart=1 .*", "workers started run=job1 round=2 .*",
              "worker ended run=job1 round=2 rank=[01] pid=[0-9]+ exit_code=0 .*",
              "verdict run=job1 round=2 exit_code=0 reason='all 2 ranks on 1 node succeeded'",
              "ending run=job1 round=2 exit_code=0"});
  CHECK(ddprun->out() != Contains("ddprun"));
  CHECK_FALSE(HasLogLine(*ddprun, "debug"));
  // What is always there is there once, as ever.
  CHECK(ddprun->err() == Contains("\nddprun: restart 1 of 1\n"));
}

TEST_CASE("log: that every worker gets one thread is said at info alone") {
  for (const char* level : {"", "info"}) {
    Job job;
    const auto ddprun =
        job.Run({"--nproc-per-node=2"}, {"env:OMP_NUM_THREADS"},
                {.env = {{"DDPRUN_LOG_LEVEL", level}, {"LOGLEVEL", ""}, {"OMP_NUM_THREADS", ""}}});
    REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
    CHECK(ddprun->out() == "OMP_NUM_THREADS=1\nOMP_NUM_THREADS=1\n");
    CHECK(CountOf(ddprun->err(), "OMP_NUM_THREADS is not set: every worker gets 1") ==
          (*level == 0 ? 0 : 1));
  }
}

TEST_CASE("log: debug has every event and action, the coordinator's too") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=1", "--rdzv-id=job1"}, {}, At("debug"));
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CheckLines(*ddprun, "debug",
             {"agent started run=job1 .*", "starting workers run=job1 round=1 ranks=0",
              "reporting success run=job1 round=1", "acknowledging verdict run=job1 round=1"});
  CheckLines(*ddprun, "debug",
             {"coordinator run=job1 hears join session=1 .*",
              "coordinator run=job1 says session=1: assign .*",
              "coordinator run=job1 hears succeeded session=1 .*",
              "coordinator run=job1 says session=1: conclude .*"});
}

TEST_CASE("log: a log file on a full disk is told of while the worker runs, and once") {
  Job job;
  const std::string disk = job.File("disk");
  std::filesystem::create_directory(disk);
  const std::string fill = "mount -t tmpfs -o size=16k logs " + disk + " && { cat /dev/zero >" +
                           disk + "/fill 2>/dev/null; exec \"$@\"; }";
  const auto run = [&](std::vector<std::string> command) {
    const std::vector<std::string> there = {
        "/usr/bin/unshare", "--mount", "/bin/sh", "-c", fill, "sh"};
    command.insert(command.begin(), there.begin(), there.end());
    return job.RunProgram(command);
  };
  if (const auto mounted = run({"/bin/true"}); mounted->Wait() != 0) {
    return SkipTest("no mount namespace here: " + mounted->err());
  }
  const auto ddprun =
      run({Runfile("ddprun"), "--log-dir=" + disk, "-r3", Runfile("tests/e2e/toy_worker"),
           "print:one", "print:two", "until:" + job.File("go"), "print:three"});
  const std::string told = "/attempt_0/0/stdout.log: No space left on device; the workers go on";
  REQUIRE_MESSAGE(ddprun->WaitForErr(told), ddprun->Describe());
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  const std::string err = ddprun->err();
  CHECK_MESSAGE(CountOf(err, told) == 1, err);
  CHECK(err == Contains("warning: 3 lines are missing from log files in " + disk));
}

TEST_CASE("log: two nodes say who hosts the coordinator and who reached it") {
  Job job;
  const std::vector<std::string> steps = {"print:rank {rank}"};
  auto a = job.Run(job.NodeOptions(1), steps, At("info"));
  AwaitMissingNodes(*a);
  auto b = job.Run(job.NodeOptions(1, "2", {"--rdzv-conf=is_host=0"}), steps, At("info"));
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  CheckLines(*a, "info",
             {"coordinator hosted here run=\\S+ at=" + job.endpoint(),
              "waiting run=\\S+ reason='1 of 2 nodes, waiting for 1 more at .*",
              "assigned .* ranks=0 world_size=2 node_rank=0 nodes=2 .*", "verdict .*"});
  CheckLines(*b, "info",
             {"joining .*", "coordinator reached run=\\S+ at=" + job.endpoint(),
              "assigned .* ranks=1 world_size=2 node_rank=1 nodes=2 .*", "verdict .*"});
}

// gRPC's word on a connection that broke comes only when it is asked to trace; then it would stand
// on stderr, were it not taken.
TEST_CASE("log: gRPC's messages on a broken stream are debug, and nowhere else") {
  for (const char* level : {"debug", "info", ""}) {
    Job job;
    const std::vector<std::string> steps = {"touch:" + job.File("up{rank}"), "wait"};
    Subprocess::Options how = At(level);
    how.env["GRPC_VERBOSITY"] = "debug";
    how.env["GRPC_TRACE"] = "connectivity_state";
    const std::string restarts = "--max-restarts=1";
    auto a = job.Run(job.NodeOptions(1, "2", {restarts}), steps);
    AwaitMissingNodes(*a);
    auto b = job.Run(job.NodeOptions(1, "2", {restarts, "--rdzv-conf=is_host=0"}), steps, how);
    REQUIRE(job.WaitForFile("up0"));
    REQUIRE(job.WaitForFile("up1"));
    a->Signal(SIGKILL);
    REQUIRE_MESSAGE(b->WaitForErr("is gone"), b->Describe());
    b->Signal(SIGTERM);
    REQUIRE_MESSAGE(b->Wait() == 143, b->Describe());
    if (level == std::string("debug")) {
      CheckLines(*b, "debug", {"grpc: ConnectivityStateTracker .*READY -> SHUTDOWN.*"});
    } else {
      CHECK(b->err() != Contains("ConnectivityStateTracker"));
    }
    if (level != std::string("")) {
      CheckLines(*b, "info",
                 {"coordinator lost run=\\S+ round=1 gone=no reason='.*'",
                  "coordinator lost run=\\S+ round=1 gone=yes reason='.*'", "stopping workers .*",
                  "ending run=\\S+ round=1 exit_code=143"});
    } else {
      CHECK_FALSE(HasLogLine(*b));
    }
    std::istringstream lines(b->err());
    for (std::string line; std::getline(lines, line);) {
      CHECK_MESSAGE(line.rfind("ddprun: ", 0) == 0, line);
    }
  }
}

TEST_CASE("log: LOGLEVEL is heard as torchrun hears it, a level that is none costs a warning") {
  Job job;
  auto heard = job.Run({}, {}, {.env = {{"LOGLEVEL", "INFO"}, {"DDPRUN_LOG_LEVEL", ""}}});
  REQUIRE_MESSAGE(heard->Wait() == 0, heard->Describe());
  CHECK_MESSAGE(HasLogLine(*heard, "info"), heard->Describe());
  auto unknown = job.Run({}, {}, At("loud"));
  REQUIRE_MESSAGE(unknown->Wait() == 0, unknown->Describe());
  CHECK_MESSAGE(unknown->err() ==
                    "ddprun: warning: DDPRUN_LOG_LEVEL 'loud' is ignored: expected "
                    "trace, debug, info, warn, error or off\n",
                unknown->Describe());
}

}  // namespace
}  // namespace ddprun::testing
