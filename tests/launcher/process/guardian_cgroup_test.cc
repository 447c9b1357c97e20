// The guardian and the job's cgroup: what neither a mark nor a session nor a parent gives away.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include "launcher/process/guardian.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "tests/launcher/process/agent_fixture.h"
#include "tests/launcher/process/cgroup_testing.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

bool IsRemoved(const std::string& path) {
  return WaitUntil([&] { return access(path.c_str(), F_OK) != 0; });
}

// The first worker leaves a daemon without environment in a session of its own and ends, so that
// the agent adopts it; the second one stays.
const std::vector<std::string> kBareDaemonAndSleeper = {"bare_daemon", "exit", "0", "--", "sleep"};

TEST_CASE("guardian: a daemon without mark, session and parent does not survive a killed agent") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  for (const bool is_replaced : {false, true}) {
    Agent agent(kBareDaemonAndSleeper);
    const pid_t daemon = agent.Await("left ");
    REQUIRE(WaitUntil([&] { return MarkOf(daemon).empty(); }));
    const std::string cgroup = CgroupOf(daemon);
    REQUIRE(IsInJobCgroup(daemon));
    // As a worker with containers of its own does.
    REQUIRE(mkdir((cgroup + "/inner").c_str(), 0755) == 0);
    if (is_replaced) {
      kill(agent.guardian(), SIGKILL);
      agent.Await("started another (pid ");
    }

    agent.Kill();

    CHECK(WaitUntil([&] { return AllGone({daemon}); }));
    CHECK(IsRemoved(cgroup));
  }
}

TEST_CASE("guardian: an agent that ends normally leaves no cgroup") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  Agent agent({"stubborn_daemon", "exit", "0"});
  const pid_t daemon = agent.Await("left ");
  const std::string cgroup = CgroupOf(daemon);
  REQUIRE(IsInJobCgroup(daemon));
  CHECK_FALSE(IsInJobCgroup(agent.guardian()));
  kill(daemon, SIGKILL);  // the group would wait its whole grace for it
  CHECK(agent.WaitForExit() == 0);
  CHECK(access(cgroup.c_str(), F_OK) != 0);
}

TEST_CASE("guardian: it goes on alone when the cgroup is still in use at the agent's end") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  auto guardian = Guardian::Start(NewJobMark());
  REQUIRE(guardian.ok());
  REQUIRE((*guardian)->cgroup() != nullptr);
  const std::string cgroup = (*guardian)->cgroup()->path();
  const pid_t pid = (*guardian)->pid();
  const SpawnResult worker = Spawn({.executable = ToyWorker(),
                                    .argv = {"toy_worker", "ignore", "15", "sleep"},
                                    .cgroup = (*guardian)->cgroup()->directory()},
                                   TestBaseline());
  REQUIRE(worker.ok());

  guardian->reset();

  CHECK(WaitUntil([&] { return AllGone({worker.pid, pid}); }));
  CHECK(IsRemoved(cgroup));
  for (const pid_t child : {worker.pid, pid}) {
    kill(child, SIGKILL);
    ReapChild(child);
  }
}

// Dies so soon after its start that no other follows for a second.
void KillForNow(Guardian& guardian, boost::asio::io_context& io) {
  std::string told;
  guardian.Watch(io, [&told](const std::string& text) { told = text; });
  // On a slow machine another may follow at once: that one is young.
  while (guardian.pid() != 0) {
    told.clear();
    kill(guardian.pid(), SIGKILL);
    REQUIRE(RunUntil(io, [&told] { return !told.empty(); }));
  }
  CHECK(told == "guardian died at once; trying again in 1 s");
}

TEST_CASE("guardian: dead itself at the agent's end, it still leaves neither process nor cgroup") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  boost::asio::io_context io;
  auto guardian = Guardian::Start(NewJobMark());
  REQUIRE(guardian.ok());
  REQUIRE((*guardian)->cgroup() != nullptr);
  const std::string cgroup = (*guardian)->cgroup()->path();
  const SpawnResult worker = Spawn({.executable = ToyWorker(),
                                    .argv = {"toy_worker", "ignore", "15", "sleep"},
                                    .cgroup = (*guardian)->cgroup()->directory()},
                                   TestBaseline());
  REQUIRE(worker.ok());
  KillForNow(**guardian, io);
  REQUIRE(IsRunning(worker.pid));

  guardian->reset();

  // At once: there is nobody left who could do it later.
  CHECK(access(cgroup.c_str(), F_OK) != 0);
  CHECK(WaitUntil([&] { return AllGone({worker.pid}); }));
  kill(worker.pid, SIGKILL);
  ReapChild(worker.pid);
  rmdir(cgroup.c_str());
}

TEST_CASE("guardian: without cgroups the marks and sessions still end the job") {
  const std::vector<std::string> wrapper = WithoutCgroups();
  if (wrapper.empty()) return SkipTest("a mount namespace is not permitted here");
  Agent agent({"stubborn_daemon", "bare_helper", "say", "ready", "sleep"}, {}, wrapper);
  const pid_t worker = agent.Await("started ");
  const std::string text = agent.TextUntil("ready\n");
  const pid_t daemon = NumberAfter(text, "left ");
  const pid_t helper = NumberAfter(text.substr(text.rfind("left ")), "left ");
  REQUIRE(IsRunning(worker));
  REQUIRE(daemon != helper);
  CHECK_FALSE(IsInJobCgroup(worker));

  agent.Kill();

  CHECK(WaitUntil([&] { return AllGone({worker, daemon, helper, agent.guardian()}); }));
}

TEST_CASE("guardian: a worker's job in a group of its own dies although the leader was first") {
  // As `bash -c 'set -m; env -i sleep 1000 & wait'`. Only its session says whose it is, and the
  // leader's process group is empty by the time the guardian looks.
  const std::vector<std::string> wrapper = WithoutCgroups();
  if (wrapper.empty()) return SkipTest("a mount namespace is not permitted here");
  Agent agent({"bare_job", "say", "ready", "sleep"}, {}, wrapper);
  const pid_t worker = agent.Await("started ");
  const pid_t job = agent.Await("left ");
  agent.TextUntil("ready\n");
  REQUIRE(WaitUntil([&] { return MarkOf(job).empty(); }));
  // So that the leader is dead and reaped before the guardian, which has the pipe's end, looks.
  REQUIRE(kill(agent.guardian(), SIGSTOP) == 0);

  agent.Kill();
  REQUIRE(WaitUntil([&] { return StateOf(worker) == '-'; }));
  kill(agent.guardian(), SIGCONT);

  CHECK(WaitUntil([&] { return AllGone({job, agent.guardian()}); }));
  kill(job, SIGKILL);  // where it was missed
}

}  // namespace
}  // namespace ddprun::launcher
