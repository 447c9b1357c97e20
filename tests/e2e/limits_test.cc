// Where threads or processes run out: ddprun ends with 120 and a sentence, or it works; and a job
// that runs goes on.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;

// A user that runs nothing else: RLIMIT_NPROC counts all processes and threads of a user.
int UnusedUser() { return 200000 + getpid(); }

TEST_CASE("limits: whatever the number of threads and processes, ddprun works or ends with 120") {
  if (geteuid() != 0) return SkipTest("only root can run ddprun as another user");
  // Where another user may go and write: the test's own folders are below root's.
  char folder[] = "/tmp/ddprun-limits-test.XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  REQUIRE(chmod(folder, 01777) == 0);
  const std::string program = std::string(folder) + "/ddprun";
  fs::copy_file(Runfile("ddprun"), program);
  Job job;
  const std::string user = std::to_string(UnusedUser());
  const std::string over_grpc =
      "--nnodes=1 --rdzv-backend=c10d --rdzv-id=limits --rdzv-endpoint=" + job.endpoint();
  int successes = 0;
  for (const std::string& how : {std::string("--standalone"), over_grpc}) {
    for (int limit = 2; limit <= 40; ++limit) {
      const std::string command = "cd / && ulimit -u " + std::to_string(limit) + " && exec " +
                                  program + " " + how + " --nproc-per-node=4 /bin/true";
      const auto ddprun =
          job.RunProgram({"/usr/bin/setpriv", "--reuid=" + user, "--regid=" + user,
                          "--clear-groups", "/bin/bash", "-c", command},
                         {.env = {{"TMPDIR", folder}, {"XDG_RUNTIME_DIR", folder}}});
      const std::optional<int> code = ddprun->Wait();
      CAPTURE(limit);
      REQUIRE_MESSAGE((code == 0 || code == 120), ddprun->Describe());
      if (code == 0) ++successes;
      if (code == 0) continue;
      CHECK_MESSAGE((ddprun->err() == Contains("ddprun: error: ") ||
                     ddprun->err() == Contains("ddprun: exit code 120: ")),
                    ddprun->Describe());
      CHECK(ddprun->err() != Contains("terminate"));
    }
  }
  fs::remove_all(folder);
  CHECK_MESSAGE(successes > 10, "most of these limits leave room for four workers");
}

// A cgroup whose pids.max can be set. Empty: there is none here.
std::string MakePidsCgroup() {
  // Version 1 has a hierarchy for each controller; version 2 one for all.
  for (const char* root : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup"}) {
    const std::string path = std::string(root) + "/ddprun-limits-test-" + std::to_string(getpid());
    if (mkdir(path.c_str(), 0755) != 0) continue;
    if (access((path + "/pids.max").c_str(), W_OK) == 0) return path;
    rmdir(path.c_str());
  }
  return "";
}

TEST_CASE("limits: a job whose cgroup is full goes on, and ends as it would") {
  for (const int exit_code : {0, 3}) {
    const std::string cgroup = MakePidsCgroup();
    if (cgroup.empty()) return SkipTest("no cgroup with pids.max can be made here");
    {
      Job job;
      const std::string command = "echo $$ > " + cgroup + "/cgroup.procs && exec \"$0\" \"$@\"";
      const auto ddprun = job.RunProgram(
          {"/bin/sh", "-c", command, Runfile("ddprun"), "--standalone", "--nproc-per-node=2",
           Runfile("tests/e2e/toy_worker"), "touch:" + job.File("up{rank}"),
           "until:" + job.File("go"), "exit:" + std::to_string(exit_code)});
      REQUIRE_MESSAGE(job.WaitForFile("up0"), ddprun->Describe());
      REQUIRE_MESSAGE(job.WaitForFile("up1"), ddprun->Describe());
      const int pids[] = {job.PidOfRank(0), job.PidOfRank(1)};
      std::ofstream(cgroup + "/pids.max") << 1;  // fewer than there are: nothing more can start
      // Longer than any wait of a healthy agent that could start a thread.
      const auto is_disturbed = [&] {
        return job.PidOfRank(0) != pids[0] || job.PidOfRank(1) != pids[1];
      };
      CHECK_FALSE_MESSAGE(Eventually(is_disturbed, std::chrono::seconds(5)), ddprun->Describe());
      job.Touch("go");
      CHECK_MESSAGE(ddprun->Wait() == exit_code, ddprun->Describe());
      CHECK(ddprun->err() != Contains("terminate"));
    }
    CHECK(Eventually([&] { return rmdir(cgroup.c_str()) == 0; }));
  }
}

}  // namespace
}  // namespace ddprun::testing
