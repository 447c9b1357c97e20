#include "launcher/process/guardian.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include <doctest/doctest.h>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "tests/launcher/process/agent_fixture.h"
#include "tests/launcher/process/cgroup_testing.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

TEST_CASE("guardian: an agent killed with -9 leaves no process of its job") {
  // A helper in the worker's group, one deaf to TERM, and a daemon in a session of its own.
  Agent agent(
      {"helper", "stubborn_helper", "stubborn_daemon", "ignore", "15", "say", "ready", "sleep"});
  const pid_t worker = agent.Await("started ");
  const std::string text = agent.TextUntil("ready\n");
  std::vector<pid_t> all = {worker, agent.guardian()};
  for (size_t at = text.find("left "); at != std::string::npos; at = text.find("left ", at + 1)) {
    all.push_back(NumberAfter(text.substr(at), "left "));
  }
  REQUIRE(all.size() == 5);
  for (const pid_t pid : all) REQUIRE(IsRunning(pid));

  agent.Kill();

  CHECK(WaitUntil([&] { return AllGone(all); }));
}

TEST_CASE("guardian: processes that appear during the kill die too") {
  Agent agent({"say", "ready", "fork", "500", "sleep"});
  agent.TextUntil("ready\n");
  const pid_t worker = agent.Await("started ");
  const std::string mark = MarkOf(worker);
  REQUIRE_FALSE(mark.empty());
  // The middle of the forking, as far as one can tell from outside.
  REQUIRE(WaitUntil([&] { return SignalLeftovers({.mark = mark.c_str()}, 0) > 50; }));

  agent.Kill();

  REQUIRE(WaitUntil([&] { return AllGone({agent.guardian()}); }));
  CHECK(SignalLeftovers({.mark = mark.c_str()}, 0) == 0);
}

TEST_CASE("guardian: an agent that ends normally leaves no process either") {
  Agent agent({"stubborn_daemon", "exit", "0"});
  const pid_t daemon = agent.Await("left ");
  REQUIRE(daemon > 0);
  kill(daemon, SIGKILL);  // the group would wait its whole grace for it
  CHECK(agent.WaitForExit() == 0);
  CHECK_FALSE(IsRunning(agent.guardian()));
}

TEST_CASE("guardian: a dead guardian is replaced, and the new one does its work") {
  Agent agent({"stubborn_daemon", "say", "ready", "sleep"});
  const pid_t worker = agent.Await("started ");
  const pid_t daemon = agent.Await("left ");
  kill(agent.guardian(), SIGKILL);
  agent.Await("died");
  const pid_t second = agent.Await("started another (pid ");
  REQUIRE(second > 0);
  CHECK(second != agent.guardian());
  CHECK(IsRunning(second));

  agent.Kill();

  CHECK(WaitUntil([&] { return AllGone({worker, daemon, second}); }));
}

TEST_CASE("guardian: a worker's session is enough, also for a guardian that was started later") {
  // The helper has lost the mark; nothing but the shared table names its session.
  for (const bool is_replaced : {false, true}) {
    Agent agent({"bare_helper", "say", "ready", "sleep"});
    const pid_t worker = agent.Await("started ");
    const pid_t helper = agent.Await("left ");
    agent.TextUntil("ready\n");
    REQUIRE(WaitUntil([&] { return MarkOf(helper).empty(); }));
    if (is_replaced) {
      kill(agent.guardian(), SIGKILL);
      agent.Await("started another (pid ");
    }

    agent.Kill();

    CHECK(WaitUntil([&] { return AllGone({worker, helper}); }));
  }
}

TEST_CASE("guardian: it has a session of its own, no descriptor of the agent's, and no open ears") {
  Agent agent({"sleep"});
  const std::string proc = "/proc/" + std::to_string(agent.guardian());
  REQUIRE(WaitUntil([&] { return testing::ReadFile(proc + "/comm") == "ddprun-guard\n"; }));
  CHECK(getsid(agent.guardian()) == agent.guardian());
  REQUIRE(WaitUntil([&] {
    char target[64] = {};
    return readlink((proc + "/fd/2").c_str(), target, sizeof(target) - 1) > 0 &&
           // 3 is the pipe, 4 tells of signals.
           std::string(target) == "/dev/null" && access((proc + "/fd/5").c_str(), F_OK) != 0;
  }));
  // Whoever meant the agent's group, or pkill by name, does not end it.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1})
    kill(agent.guardian(), signal);
  const pid_t worker = agent.Await("started ");
  CHECK(IsRunning(agent.guardian()));
  agent.Kill();
  CHECK(WaitUntil([&] { return AllGone({worker, agent.guardian()}); }));
}

TEST_CASE("guardian: a job within a job dies with the outer one, its guardian included") {
  const std::string outer = NewJobMark();
  Agent inner({"stubborn_daemon", "say", "ready", "sleep"},
              {std::string(kJobMarkVariable) + "=" + outer});
  const pid_t worker = inner.Await("started ");
  const pid_t daemon = inner.Await("left ");
  const pid_t guardian = inner.guardian();
  const pid_t agent = inner.pid();
  const std::string cgroup = CgroupOf(worker);
  CHECK(SignalLeftovers({.mark = outer.c_str()}, 0) == 4);  // agent, guardian, worker, daemon

  SignalLeftovers({.mark = outer.c_str()}, SIGKILL);

  CHECK(WaitUntil([&] { return AllGone({agent, worker, daemon, guardian}); }));
  // It lies in the outer job's, whose guardian would remove both.
  if (cgroup.find("/ddprun-") != std::string::npos) {
    CHECK(WaitUntil([&] { return RemoveCgroup(cgroup.c_str()); }));
  }
}

TEST_CASE("guardian: the end of one job does not touch another on the same machine") {
  Agent first({"daemon", "sleep"});
  Agent second({"daemon", "sleep"});
  const std::vector<pid_t> others = {second.Await("started "), second.Await("left "),
                                     second.guardian()};
  const pid_t gone = first.Await("left ");
  first.Kill();
  REQUIRE(WaitUntil([&] { return AllGone({gone, first.guardian()}); }));
  for (const pid_t pid : others) CHECK(IsRunning(pid));
}

TEST_CASE("guardian: an agent started with SIGCHLD ignored still sees its workers end") {
  // An inherited "ignore" makes the kernel reap children, and every wait for them fail.
  ProcessBaseline odd = TestBaseline();
  odd.ignored_signals |= BitOf(SIGCHLD);
  CapturePipe output;
  const std::string toy = ToyWorker();
  SpawnRequest request;
  request.executable = toy.substr(0, toy.rfind('/')) + "/toy_agent";
  request.argv = {"toy_agent", "signals", "exit", "3"};
  request.env = TestEnvironment();
  request.stdout_fd = output.write_end();
  const SpawnResult result = Spawn(request, odd);
  REQUIRE(result.ok());
  const std::string text = output.ReadAll();
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(result.pid), &info, WEXITED);
  CHECK(info.si_status == 0);
  // The worker finds ignored what the agent found, no less and no more.
  char ignored[32];
  std::snprintf(ignored, sizeof(ignored), "SigIgn:%016llx",
                static_cast<unsigned long long>(odd.ignored_signals));
  CHECK(text == Contains(ignored));
}

TEST_CASE("guardian: an agent started without stdin gives its workers /dev/null") {
  CapturePipe output;
  const std::string toy = ToyWorker();
  SpawnRequest request;
  request.executable = "/bin/sh";
  request.argv = {"sh", "-c", "exec \"$0\" fds exit 0 <&-",
                  toy.substr(0, toy.rfind('/')) + "/toy_agent"};
  request.env = TestEnvironment();
  request.stdout_fd = output.write_end();
  const SpawnResult result = Spawn(request, TestBaseline());
  REQUIRE(result.ok());
  const std::string text = output.ReadAll();
  ReapChild(result.pid);
  CHECK(text == Contains("0 1 2\n"));
}

}  // namespace
}  // namespace ddprun::launcher
