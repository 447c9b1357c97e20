// A worker that the kernel's OOM killer ends: ddprun says so, and the job goes on.
#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/launcher/status/limited_cgroup.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

TEST_CASE("oom: a rank that takes more memory than there is is named so, and restarted") {
  const LimitedCgroup cgroup(int64_t{256} << 20);
  if (!cgroup.why_not().empty()) return SkipTest(cgroup.why_not());
  Job job;
  const auto ddprun = job.RunProgram(
      {"/bin/sh", "-c", "echo $$ >\"$0\" && exec \"$@\"", cgroup.procs_file(), Runfile("ddprun"),
       "--nproc-per-node=2", "--max-restarts=1", "--no-python", "/bin/sh", "-c",
       // A line without an end is kept as a whole.
       "[ $TORCHELASTIC_RESTART_COUNT$RANK != 01 ] || exec tail /dev/zero; exec \"$@\"", "sh",
       Runfile("tests/e2e/toy_worker"), "wait#0", "print:rank {rank} again"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("killed by the OOM killer, limit 256 MiB"));
  CHECK(ddprun->err() == Contains("ddprun: restart 1 of 1\n"));
  CHECK(ddprun->out() == Contains("rank 0 again\n"));
  CHECK(ddprun->out() == Contains("rank 1 again\n"));
}

// What the kernel had counted before is read before the first worker starts, not after the last.
TEST_CASE("oom: a rank that is killed before the last one starts is named so, too") {
  const LimitedCgroup cgroup(int64_t{256} << 20);
  if (!cgroup.why_not().empty()) return SkipTest(cgroup.why_not());
  Job job;
  const auto ddprun = job.RunProgram(
      {"/bin/sh", "-c", "echo $$ >\"$0\" && exec \"$@\"", cgroup.procs_file(),
       Runfile(kGatedDdprun), "--nproc-per-node=2", "--no-python", "/usr/bin/tail", "/dev/zero"},
      {.env = {{kSpawnGate, job.File("never")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 137, ddprun->Describe());
  CHECK(ddprun->err() == Contains("killed by the OOM killer, limit 256 MiB"));
}

}  // namespace
}  // namespace ddprun::testing
