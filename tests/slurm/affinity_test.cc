// Slurm binds each task to CPUs of its own (task/affinity), on a node that has the machine's. What
// --numa-binding chooses for workers lies within.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_split.h"
#include "tests/slurm/lab.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"

namespace ddprun::slurm {
namespace {

using testing::Subprocess;

// The step's own mask, then each worker's: the lists of /proc/self/status.
Words Masks(const Words& slurm, const Words& options) {
  const std::string script = "sed -n 's/^Cpus_allowed_list:\\t//p' /proc/self/status";
  Words argv = {"/usr/bin/srun"};
  argv.insert(argv.end(), slurm.begin(), slurm.end());
  argv.insert(argv.end(),
              {"/bin/bash", "-c", script + "; exec \"$@\"", "bash", testing::Runfile("ddprun")});
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"--no-python", "/bin/bash", "-c", script});
  Subprocess srun(argv);
  REQUIRE_MESSAGE(srun.Wait() == 0, srun.Describe());
  return absl::StrSplit(srun.out(), '\n', absl::SkipEmpty());
}

bool HasTwoCpus() { return Output({"/usr/bin/nproc"}) != "1\n"; }

TEST_CASE("affinity: each binding stays on the one CPU of the task") {
  if (!HasTwoCpus()) return testing::SkipTest("a machine of one CPU");
  for (const std::string cpu : {"0", "1"}) {
    CAPTURE(cpu);
    const Words one = {"-N1", "--exclusive", "--cpu-bind=map_cpu:" + cpu};
    CHECK(Masks(one, {"--nproc-per-node=2"}) == Words(3, cpu));
    for (const std::string binding : {"node", "socket", "core-complex"}) {
      CAPTURE(binding);
      CHECK(Masks(one, {"--nproc-per-node=2", "--numa-binding=" + binding}) == Words(3, cpu));
    }
    CHECK(Masks(one, {"--nproc-per-node=1", "--numa-binding=exclusive"}) == Words(2, cpu));
  }
}

TEST_CASE("affinity: srun's own choice for --cpus-per-task=1 is one CPU, and workers share it") {
  if (!HasTwoCpus()) return testing::SkipTest("a machine of one CPU");
  const Words masks =
      Masks({"-N1", "--cpus-per-task=1"}, {"--nproc-per-node=3", "--numa-binding=node"});
  REQUIRE(masks.size() == 4);
  CHECK(masks[0].size() == 1);
  CHECK(masks == Words(4, masks[0]));
}

TEST_CASE("affinity: where the task has two cores, exclusive gives each worker one of them") {
  const std::string siblings = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list";
  if (!HasTwoCpus()) return testing::SkipTest("a machine of one CPU");
  if (Output({"/bin/cat", siblings}) != "0\n") {
    return testing::SkipTest("a machine whose CPU 0 is no core of its own");
  }
  Words masks = Masks({"-N1", "--exclusive", "--cpu-bind=mask_cpu:0x3"},
                      {"--nproc-per-node=2", "--numa-binding=exclusive"});
  REQUIRE(masks.size() == 3);
  std::sort(masks.begin() + 1, masks.end());
  CHECK(masks == Words{"0-1", "0", "1"});
}

TEST_CASE("affinity: exclusive workers that are more than the task's CPUs are refused") {
  if (!HasTwoCpus()) return testing::SkipTest("a machine of one CPU");
  const Result result = Run({.slurm = {"-N1", "--exclusive", "--cpu-bind=map_cpu:1"},
                             .options = {"--nproc-per-node=2", "--numa-binding=exclusive"},
                             .steps = {"print:{rank}"}});
  CHECK(result.code == 120);
  CHECK(result.out == "");
  CHECK(result.err == Contains("has 1 physical cores for 2 workers"));
}

}  // namespace
}  // namespace ddprun::slurm
