// The real ddprun and the cgroup of its job: however the job ends, neither a process nor a
// directory is left.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include <doctest/doctest.h>

#include "launcher/process/job_cgroup.h"
#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/launcher/process/cgroup_testing.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// Leaves a process that has no environment, leads a session of its own and is the child of a shell
// that has ended; says in the job's directory where that process and its cgroup are; then goes on
// with `rest`.
std::string WriteScript(const Job& job, const std::string& rest) {
  const std::string path = job.File("worker");
  const std::string daemon = "env -i setsid sh -c 'echo $$ >" + job.File("pid.new") +
                             "; exec sleep 1000' >/dev/null 2>&1 &";
  {
    std::ofstream(path) << "#!/bin/sh\n"
                        << "sh -c \""
                        << "$(cat " << job.File("daemon") << ")"
                        << "\"\n"
                        << "while ! [ -s " << job.File("pid.new") << " ]; do sleep 0.01; done\n"
                        << "cat /proc/self/cgroup >" << job.File("cgroup") << "\n"
                        << "mv " << job.File("pid.new") << " " << job.File("pid") << "\n"
                        << rest << "\n";
    std::ofstream(job.File("daemon")) << daemon << "\n";
  }
  if (chmod(path.c_str(), 0755) != 0) std::abort();
  return path;
}

// Where the worker said it was; empty when that is no cgroup of a job.
std::string JobCgroupOf(const Job& job) {
  const std::string cgroups = ReadFile(job.File("cgroup"));
  if (cgroups.find("/ddprun-") == std::string::npos) return "";
  const auto found = launcher::OwnCgroupDirectories(ReadFile("/proc/self/mountinfo"), cgroups);
  return found.empty() ? "" : found.front();
}

bool IsGone(const std::string& path) {
  return Eventually([&] { return access(path.c_str(), F_OK) != 0; });
}

bool IsDead(const Job& job) {
  const int pid = std::atoi(ReadFile(job.File("pid")).c_str());
  // Whoever adopts it may not reap it: a zombie is dead, too.
  return pid > 0 && Eventually([pid] {
           const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
           return stat.empty() || stat.find(") Z ") != std::string::npos;
         });
}

TEST_CASE("cgroup: no end of a job leaves a process without mark, or a directory") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  const struct {
    std::string rest;  // of the worker
    int signal;        // to ddprun; 0: none
    int exit_code;
  } rows[] = {{"exit 0", 0, 0},
              {"exit 3", 0, 3},
              {"exec sleep 1000", SIGTERM, 143},
              {"exec sleep 1000", SIGKILL, 137}};
  for (const auto& row : rows) {
    CAPTURE(row.exit_code);
    Job job;
    auto ddprun = job.RunRaw({"--nproc-per-node=1", "--no-python", WriteScript(job, row.rest)});
    REQUIRE_MESSAGE(job.WaitForFile("pid"), ddprun->Describe());
    const std::string cgroup = JobCgroupOf(job);
    REQUIRE_FALSE(cgroup.empty());
    if (row.signal != 0) ddprun->Signal(row.signal);
    REQUIRE_MESSAGE(ddprun->Wait() == row.exit_code, ddprun->Describe());
    CHECK(IsDead(job));
    CHECK(IsGone(cgroup));
  }
}

TEST_CASE("cgroup: a start that fails leaves no directory") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  Job job(kGatedDdprun);
  // The script removes itself, so that the second spawn finds nothing.
  const std::string script =
      WriteScript(job, "rm \"$0\"; touch " + job.File("removed") + "; exec sleep 1000");
  auto ddprun = job.RunRaw({"--nproc-per-node=2", "--no-python", script},
                           {.env = {{kSpawnGate, job.File("removed")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 127, ddprun->Describe());
  CHECK(IsDead(job));
  const std::string cgroup = JobCgroupOf(job);
  REQUIRE_FALSE(cgroup.empty());
  CHECK(IsGone(cgroup));
}

TEST_CASE("cgroup: a killed outer job takes the inner job's cgroup along") {
  if (const std::string why = ProvideCgroups(); !why.empty()) return SkipTest(why);
  Job job;
  auto outer =
      job.RunRaw({"--nproc-per-node=1", "--no-python", Runfile("ddprun"), "--standalone",
                  "--nproc-per-node=1", "--no-python", WriteScript(job, "exec sleep 1000")});
  REQUIRE_MESSAGE(job.WaitForFile("pid"), outer->Describe());
  const std::string inner_cgroup = JobCgroupOf(job);
  const std::string outer_cgroup = inner_cgroup.substr(0, inner_cgroup.rfind('/'));
  REQUIRE(outer_cgroup == Contains("/ddprun-"));
  outer->Signal(SIGKILL);
  REQUIRE_MESSAGE(outer->Wait() == 137, outer->Describe());
  CHECK(IsDead(job));
  CHECK(IsGone(outer_cgroup));
}

}  // namespace
}  // namespace ddprun::testing
