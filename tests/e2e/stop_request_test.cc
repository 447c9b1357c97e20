// --preempt-signal and --requeue-code: workers are asked to save and stop by a flag that they poll.
#include <signal.h>

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr char kAsked[] = "SIGUSR1: asked the workers of this node for a graceful stop\n";
constexpr char kRequeue[] = "ddprun: exit code 99: graceful stop by SIGUSR1 (--requeue-code)\n";

// As Slurm does it: to ddprun, its guardian and its workers.
void SignalAll(const Job& job, int signal) {
  for (const int pid : job.Processes()) kill(pid, signal);
}

TEST_CASE("stop request: workers read it, nobody dies of the signal, and the code says requeue") {
  for (const bool has_log_dir : {false, true}) {
    Job job;
    Strings options = {"--nproc-per-node=2", "--preempt-signal=USR1", "--requeue-code=99"};
    if (has_log_dir) options.push_back("--log-dir=" + job.File("logs"));
    const Node ddprun =
        job.Run(options, {"env:DDPRUN_STOP_FILE@0", "touch:" + job.File("up{rank}"), "asked"});
    for (const char* up : {"up0", "up1"}) REQUIRE(job.WaitForFile(up));
    SignalAll(job, SIGUSR1);
    CHECK_MESSAGE(ddprun->Wait() == 99, ddprun->Describe());
    CHECK(ddprun->err() == Contains(kAsked));
    CHECK(ddprun->err() == Contains(kRequeue));
    const std::string line = ddprun->out();
    const std::string path = line.substr(line.find('=') + 1, line.find('\n') - line.find('=') - 1);
    CHECK(std::filesystem::path(path).is_absolute());
    CHECK_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path()));
  }
}

TEST_CASE("stop request: the code is the job's own without --requeue_code, or where nobody read") {
  struct Row {
    Strings options;
    Strings steps;
    int code;
  };
  const Row rows[] = {{{}, {"asked"}, 0},
                      {{"--requeue-code=99"}, {"until:{go}"}, 0},
                      {{"--requeue-code=99"}, {"until:{go}", "exit:3"}, 3},
                      {{"--requeue-code=99"}, {"asked", "exit:3"}, 99}};
  for (const Row& row : rows) {
    Job job;
    Strings options = row.options, steps = {"touch:" + job.File("up")};
    options.push_back("--preempt-signal=SIGUSR1");
    for (std::string step : row.steps) {
      if (step == "until:{go}") step = "until:" + job.File("go");
      steps.push_back(step);
    }
    const Node ddprun = job.Run(options, steps);
    REQUIRE(job.WaitForFile("up"));
    ddprun->Signal(SIGUSR1);
    REQUIRE_MESSAGE(ddprun->WaitForErr(kAsked), ddprun->Describe());
    job.Touch("go");
    CHECK_MESSAGE(ddprun->Wait() == row.code, ddprun->Describe());
    CHECK((ddprun->err() == Contains(kRequeue)) == (row.code == 99));
  }
}

TEST_CASE("stop request: a node that waits for others ends with the code at once") {
  Job job;
  const Node ddprun = job.Run(
      job.NodeOptions(1, "2", {"--preempt-signal=USR1", "--requeue-code=99"}), {"touch:ran"});
  AwaitMissingNodes(*ddprun);
  ddprun->Signal(SIGUSR1);
  CHECK_MESSAGE(ddprun->Wait() == 99, ddprun->Describe());
  CHECK(ddprun->err() == Contains(", which was waiting for 1 "));
}

TEST_CASE("stop request: it holds for the workers of later rounds, and is said once") {
  Job job;
  const Node ddprun =
      job.Run({"--max-restarts=1", "--preempt-signal=10", "--requeue-code=99"},
              {"touch:" + job.File("up"), "until:" + job.File("go"), "die:9#0", "poll"});
  REQUIRE(job.WaitForFile("up"));
  ddprun->Signal(SIGUSR1);
  REQUIRE_MESSAGE(ddprun->WaitForErr(kAsked), ddprun->Describe());
  ddprun->Signal(SIGUSR1);
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 99, ddprun->Describe());
  CHECK(ddprun->out() == "asked\n");
  CHECK_MESSAGE(CountOf(ddprun->err(), kAsked) == 1, ddprun->Describe());
}

TEST_CASE("stop request: the first SIGTERM asks, a later one stops, SIGQUIT kills") {
  Job job;
  const Node ddprun = job.Run(
      {"--preempt-signal=TERM", "--shutdown-timeout=6000"},
      {"ignore:15", "touch:" + job.File("up"), "asked", "touch:" + job.File("read"), "wait"});
  REQUIRE(job.WaitForFile("up"));
  ddprun->Signal(SIGTERM);
  REQUIRE_MESSAGE(ddprun->WaitForErr("SIGTERM: asked the workers"), ddprun->Describe());
  REQUIRE(job.WaitForFile("read"));
  // Within 2 s it is the first one that a front end passes on.
  REQUIRE_MESSAGE(Eventually([&] {
                    ddprun->Signal(SIGTERM);
                    return ddprun->err() == Contains("SIGTERM: stopping rank 0");
                  }),
                  ddprun->Describe());
  ddprun->Signal(SIGQUIT);
  CHECK_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
}

TEST_CASE("stop request: the flag is there without the option, and is not that of an outer job") {
  Job job;
  const Node ddprun =
      job.Run({}, {"env:DDPRUN_STOP_FILE"}, {.env = {{"DDPRUN_STOP_FILE", "/of/another"}}});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  const std::string flag = "DDPRUN_STOP_FILE=/";
  CHECK(ddprun->out().substr(0, flag.size()) == flag);
  CHECK(ddprun->out() != Contains("/of/another"));
}

TEST_CASE("stop request: the file of a killed agent goes, too") {
  Job job;
  const Node ddprun = job.Run({"--preempt-signal=USR1"},
                              {"env:DDPRUN_STOP_FILE", "touch:" + job.File("up"), "wait"});
  REQUIRE(job.WaitForFile("up"));
  REQUIRE(ddprun->WaitForOut("\n"));
  const std::string line = ddprun->out();
  const std::filesystem::path path =
      line.substr(line.find('=') + 1, line.size() - line.find('=') - 2);
  CHECK(std::filesystem::exists(path));
  ddprun->Signal(SIGKILL);
  ddprun->Wait();
  CHECK(Eventually([&] { return !std::filesystem::exists(path.parent_path()); }));
}

TEST_CASE("stop request: the file is in memory, wherever TMPDIR is") {
  Job job;
  const Node ddprun = job.Run({"--preempt-signal=USR1"}, {"env:DDPRUN_STOP_FILE"},
                              {.env = {{"TMPDIR", job.File("")}}});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == Contains("DDPRUN_STOP_FILE=/dev/shm/ddprun_"));
}

TEST_CASE("stop request: where the file cannot be made the job runs, and one warning says so") {
  Job job;
  constexpr char kFull[] = "mount -t tmpfs -o nr_inodes=1 shm /dev/shm && exec \"$@\"";
  const Strings there = {"/usr/bin/unshare", "--mount", "/bin/sh", "-c", kFull, "sh"};
  const auto run = [&](Strings command) {
    command.insert(command.begin(), there.begin(), there.end());
    return job.RunProgram(command, {.env = {{"TMPDIR", job.File("nowhere")}}});
  };
  if (const Node mounted = run({"/bin/true"}); mounted->Wait() != 0) {
    return SkipTest("no mount namespace here: " + mounted->err());
  }
  const Node ddprun =
      run({Runfile("ddprun"), "--preempt-signal=USR1", "--log-dir=" + job.File("logs"),
           Runfile("tests/e2e/toy_worker"), "env:DDPRUN_STOP_FILE", "touch:" + job.File("up"),
           "until:" + job.File("go")});
  REQUIRE_MESSAGE(job.WaitForFile("up"), ddprun->Describe());
  ddprun->Signal(SIGUSR1);
  REQUIRE_MESSAGE(
      ddprun->WaitForErr("SIGUSR1: the workers of this node cannot be asked for a graceful stop"),
      ddprun->Describe());
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == "DDPRUN_STOP_FILE=\n");
  CHECK(
      ddprun->err() ==
      Contains(
          "ddprun: warning: --preempt-signal: the workers cannot be asked for a graceful stop: "));
}

}  // namespace
}  // namespace ddprun::testing
