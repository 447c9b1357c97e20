#include "launcher/process/job_cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <utility>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include "launcher/process/exit_status.h"
#include "launcher/process/leftover_watch.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/owner_tag.h"
#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_group.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/launcher/process/cgroup_testing.h"
#include "tests/launcher/process/group_fixture.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

void Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  CHECK_MESSAGE(file.good(), path);
}

// Moves this process into a new cgroup below its own. Jobs that run beside this test, and remove
// what is abandoned beside their own cgroups, do not look there.
class CgroupApart {
 public:
  CgroupApart() : before_(CgroupOf(getpid())), path_(before_ + "/apart-" + NewJobMark()) {
    REQUIRE(mkdir(path_.c_str(), 0755) == 0);
  }
  ~CgroupApart() {
    Write(before_ + "/cgroup.procs", std::to_string(getpid()));
    CHECK(WaitUntil([this] { return rmdir(path_.c_str()) == 0; }));
  }
  CgroupApart(const CgroupApart&) = delete;
  CgroupApart& operator=(const CgroupApart&) = delete;

  // While nobody is in it.
  void Kill() const { Write(path_ + "/cgroup.kill", "1"); }
  void Enter() const { Write(path_ + "/cgroup.procs", std::to_string(getpid())); }

 private:
  const std::string before_;
  const std::string path_;
};

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

SpawnResult SpawnInto(int directory, std::vector<std::string> verbs, int stdout_fd = -1) {
  SpawnRequest request{.executable = ToyWorker(), .argv = {"toy_worker"}};
  for (std::string& verb : verbs) request.argv.push_back(std::move(verb));
  request.stdout_fd = stdout_fd;
  request.cgroup = directory;
  return Spawn(request, TestBaseline());
}

TEST_CASE("job_cgroup: the own directory is found under every kind of mount") {
  const std::string kV1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
  const struct {
    std::string mountinfo;
    std::string cgroups;
    std::vector<std::string> expected;
  } rows[] = {
      // Unified, and hybrid beside v1.
      {"30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
       "0::/user.slice/a\n",
       {"/sys/fs/cgroup/user.slice/a"}},
      {kV1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
       "9:name=systemd:/x\n1:cpu:/y\n0::/\n",
       {"/sys/fs/cgroup/unified"}},
      // A part of the tree, as in a container without a cgroup namespace.
      {"30 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
       "0::/docker/1/a\n",
       {"/sys/fs/cgroup/a"}},
      {"30 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
       "0::/docker/1\n",
       {"/sys/fs/cgroup"}},
      {"30 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/12\n", {}},
      {"30 23 0:26 /.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/\n", {}},
      // Two mounts, one with a blank in its path.
      {"30 23 0:26 / /a\\040b rw - cgroup2 none rw\n31 23 0:26 / /c rw - cgroup2 none rw\n",
       "0::/x\n",
       {"/a b/x", "/c/x"}},
      // A step of Slurm (22.05 and 23.11).
      {"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
       "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
       {}},
      {"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
       "0::/system.slice/n1_slurmstepd.scope/job_12/step_0/user/task_0\n",
       {}},
      {kV1, "0::/\n", {}},
      {"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "1:cpu:/y\n", {}},
      {"", "", {}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.mountinfo);
    CHECK(OwnCgroupDirectories(row.mountinfo, row.cgroups) == row.expected);
  }
}

TEST_CASE("job_cgroup: it is named after the job and removed with what workers made in it") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const std::string inner = NewJobMark();
  const auto cgroup = JobCgroup::Make("outer/" + inner);
  REQUIRE(cgroup != nullptr);
  CHECK(cgroup->name() == "/ddprun-" + OwnerTag() + "-" + inner);
  CHECK(cgroup->path() == CgroupOf(getpid()) + cgroup->name());
  for (const char* below : {"/a", "/a/b", "/c"}) {
    REQUIRE(mkdir((cgroup->path() + below).c_str(), 0755) == 0);
  }

  CHECK(cgroup->Remove());

  CHECK_FALSE(Exists(cgroup->path()));
}

TEST_CASE("job_cgroup: what killed jobs left is removed, a living owner's is kept") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const CgroupApart apart;
  apart.Enter();
  const auto cgroup = JobCgroup::Make(NewJobMark());
  const auto of_other_job = JobCgroup::Make(NewJobMark());  // empty, and its owner lives
  REQUIRE(cgroup != nullptr);
  REQUIRE(of_other_job != nullptr);
  const std::string gone_tag = OwnerTag(INT_MAX);  // no process has this pid
  const std::string parent = CgroupOf(getpid());
  const std::string stale = parent + "/ddprun-" + gone_tag + "-" + NewJobMark();
  const std::string used = parent + "/ddprun-" + gone_tag + "-" + NewJobMark();
  const std::string untagged = parent + "/ddprun-" + NewJobMark();
  for (const std::string& path : {stale, stale + "/inner", used, used + "/inner", untagged}) {
    REQUIRE(mkdir(path.c_str(), 0755) == 0);
  }
  const UniqueFd directory(open(used.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const SpawnResult worker = SpawnInto(directory.get(), {"sleep"});
  REQUIRE(worker.ok());

  cgroup->RemoveAbandoned();

  CHECK_FALSE(Exists(stale));
  CHECK(Exists(used + "/inner"));
  CHECK(Exists(untagged));
  CHECK(Exists(of_other_job->path()));
  kill(worker.pid, SIGKILL);
  ReapChild(worker.pid);
  CHECK(WaitUntil([&] {
    cgroup->RemoveAbandoned();
    return !Exists(used);
  }));
  CHECK(rmdir(untagged.c_str()) == 0);
  CHECK(of_other_job->Remove());
  CHECK(cgroup->Remove());
}

TEST_CASE("job_cgroup: one that holds a process is not removed, and a kill empties it") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const auto cgroup = JobCgroup::Make(NewJobMark());
  REQUIRE(cgroup != nullptr);
  const SpawnResult worker = SpawnInto(cgroup->directory(), {"ignore", "15", "sleep"});
  REQUIRE(worker.ok());
  CHECK(CgroupOf(worker.pid) == cgroup->path());
  CHECK(SignalLeftovers({.cgroup = cgroup->name().c_str()}, 0) == 1);
  CHECK(SignalLeftovers({.cgroup = "/ddprun-none"}, 0) == 0);
  CHECK(cgroup->IsPopulated());
  CHECK_FALSE(cgroup->Remove());

  cgroup->Kill();

  CHECK(WaitUntil([&] { return !IsRunning(worker.pid); }));
  kill(worker.pid, SIGKILL);
  ReapChild(worker.pid);
  CHECK_FALSE(cgroup->IsPopulated());
  CHECK(cgroup->Remove());
}

TEST_CASE("job_cgroup: an exec that fails in it is reported as ever") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const auto cgroup = JobCgroup::Make(NewJobMark());
  REQUIRE(cgroup != nullptr);
  const SpawnResult result = Spawn(
      {.executable = "./none", .argv = {"none"}, .cgroup = cgroup->directory()}, TestBaseline());
  CHECK(result.exit_code == kExitNotFound);
  CHECK(result.text == "exec \"./none\": No such file or directory (ENOENT)");
  CHECK(cgroup->Remove());
}

TEST_CASE("job_cgroup: workers live also where the agent's own cgroup was killed before") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const CgroupApart killed;
  killed.Kill();
  killed.Enter();
  const auto cgroup = JobCgroup::Make(NewJobMark());
  CapturePipe output;
  const SpawnResult worker =
      SpawnInto(cgroup != nullptr ? cgroup->directory() : -1, {"say", "born"}, output.write_end());
  REQUIRE_MESSAGE(worker.ok(), worker.text);
  CHECK(output.ReadAll() == "born\n");
  ReapChild(worker.pid);
  CHECK((cgroup == nullptr || cgroup->Remove()));
}

TEST_CASE("job_cgroup: a worker that cannot be born in it starts where the agent is") {
  const UniqueFd no_cgroup(open("/dev/null", O_RDONLY | O_CLOEXEC));
  CapturePipe output;
  const SpawnResult result = SpawnInto(no_cgroup.get(), {"say", "started"}, output.write_end());
  REQUIRE_MESSAGE(result.ok(), result.text);
  CHECK(output.ReadAll() == "started\n");
  ReapChild(result.pid);
}

TEST_CASE(
    "job_cgroup: what a worker left without mark, session or parent is stopped like the rest") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  // Children from before the job: then a child of ours is not known to be a worker's.
  const SpawnResult stranger = SpawnInto(-1, {"sleep"});
  REQUIRE(stranger.ok());
  const auto cgroup = JobCgroup::Make(NewJobMark());
  REQUIRE(cgroup != nullptr);
  {
    // lower bound: what ends by itself meanwhile is gone as well
    GroupFixture fixture(true, /*is_spawn_held=*/false, /*leftover_grace=*/100ms, TestBaseline(),
                         cgroup.get());
    fixture.group.Start({fixture.Toy(0, {"bare_daemon", "exit", "0"})});
    REQUIRE(fixture.RunToEnd());
    CHECK_FALSE(IsRunning(NumberAfter(fixture.output.ReadAll(), "left ")));
    CHECK(IsRunning(stranger.pid));
  }
  CHECK(cgroup->Remove());
  kill(stranger.pid, SIGKILL);
  ReapChild(stranger.pid);
}

TEST_CASE("job_cgroup: to watch what lives in it takes no walk over /proc") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const auto cgroup = JobCgroup::Make(NewJobMark());
  REQUIRE(cgroup != nullptr);
  const SpawnResult worker = SpawnInto(cgroup->directory(), {"sleep"});
  REQUIRE(worker.ok());
  boost::asio::io_context io;
  const ProcessTable table(io, true, [] {});
  LeftoverWatch leftovers(table, {.cgroup = cgroup.get(), .proc = "/none"}, 1h);
  const TimePoint now = SteadyNow();

  CHECK_FALSE(leftovers.AreLeft(now));  // the walk that tells them to end
  CHECK(leftovers.AreLeft(now));

  kill(worker.pid, SIGKILL);
  CHECK(WaitUntil([&] { return !leftovers.AreLeft(now); }));  // a zombie and no other child
  ReapChild(worker.pid);
  CHECK(cgroup->Remove());
}

TEST_CASE("job_cgroup: killing what is left at the end includes those without a mark") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const auto cgroup = JobCgroup::Make(NewJobMark());
  REQUIRE(cgroup != nullptr);
  const SpawnResult worker = SpawnInto(cgroup->directory(), {"ignore", "15", "sleep"});
  REQUIRE(worker.ok());
  CHECK(KillLeftovers(NewJobMark(), cgroup.get(), 20s));
  CHECK(StateOf(worker.pid) == 'Z');  // whoever watches it reaps it
  kill(worker.pid, SIGKILL);          // where it was missed
  ReapChild(worker.pid);
  CHECK(cgroup->Remove());
}

}  // namespace
}  // namespace ddprun::launcher
