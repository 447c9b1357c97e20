// A signal arrives once at each worker, whoever sends it: ddprun passes on what the workers did not
// get from elsewhere.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

// Two workers that count `signal`, until SIGUSR2.
Node Start(Job& job, int signal) {
  const std::string number = std::to_string(signal);
  Node ddprun = job.Run({"--nproc-per-node=2", "--shutdown-timeout=6000"},
                        {"block:12", "block:" + number, "touch:" + job.File("up{rank}"),
                         "count:" + number, "touch:" + job.File("counted{rank}")});
  for (const char* up : {"up0", "up1"}) REQUIRE_MESSAGE(job.WaitForFile(up), ddprun->Describe());
  return ddprun;
}

constexpr char kOnceEach[] = "got it\ngot it\n";

// Of two signals that wait for a worker it takes SIGUSR2 first.
void AwaitOnce(const Node& ddprun) {
  REQUIRE_MESSAGE(ddprun->WaitForOut(kOnceEach), ddprun->Describe());
}

TEST_CASE("signals once: one for ddprun is passed on, to each worker once") {
  Job job;
  const Node ddprun = Start(job, SIGUSR1);
  ddprun->Signal(SIGUSR1);
  AwaitOnce(ddprun);
  ddprun->Signal(SIGUSR2);
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == kOnceEach);
}

// As Slurm does it with proctrack/linuxproc: the test is an ancestor of ddprun.
TEST_CASE("signals once: one for all processes of the job is not passed on") {
  Job job;
  const Node ddprun = Start(job, SIGUSR1);
  for (const int pid : job.Processes()) kill(pid, SIGUSR1);
  AwaitOnce(ddprun);
  ddprun->Signal(SIGUSR2);
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == kOnceEach);
}

TEST_CASE("signals once: nor is a SIGTERM, which stops the job all the same") {
  Job job;
  const Node ddprun = Start(job, SIGTERM);
  const int workers[] = {job.PidOfRank(0), job.PidOfRank(1)};
  for (const int pid : job.Processes()) kill(pid, SIGTERM);
  REQUIRE_MESSAGE(ddprun->WaitForErr("SIGTERM: stopping ranks 0-1"), ddprun->Describe());
  AwaitOnce(ddprun);
  for (const int pid : workers) kill(pid, SIGUSR2);
  CHECK_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
  CHECK(ddprun->out() == kOnceEach);
}

// `pkill ddprun` finds the agent and its guardian.
TEST_CASE("signals once: a stranger that reaches the guardian does not speak for the workers") {
  Job job;
  const Node ddprun = Start(job, SIGUSR1);
  std::vector<std::string> argv = {"/bin/bash", "-c", "kill -USR1 \"$@\"; exit $?", "kill"};
  for (const int pid : job.Processes()) {
    if (pid != job.PidOfRank(0) && pid != job.PidOfRank(1)) argv.push_back(std::to_string(pid));
  }
  REQUIRE(argv.size() == 6);
  Subprocess stranger(argv);
  REQUIRE(stranger.Wait() == 0);
  AwaitOnce(ddprun);
  ddprun->Signal(SIGUSR2);
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == kOnceEach);
}

}  // namespace
}  // namespace ddprun::testing
