// Where Slurm tracks processes by cgroup, its SIGKILL must reach all of ours, and no cgroup of ours
// may stay in its tree: the node would drain.
#include <doctest/doctest.h>

#include <string>

#include "tests/slurm/lab.h"

namespace ddprun::slurm {
namespace {

using testing::Eventually;

void CheckNodeIsUnharmed() {
  CheckNoProcessIsLeft();
  CHECK(Output({"/usr/bin/find", "/sys/fs/cgroup", "-path", "*slurm*", "-name", "ddprun-*"}) == "");
  CHECK(Eventually([] {
    return Output({"/usr/bin/sinfo", "-h", "-p", "main", "-o", "%T"}) == "idle\n";
  }));
  CheckNextJobTidies(1);
}

// A script that prepares, runs the trainer, and ignores SIGTERM as the trainer does.
std::string Wrapped() {
  return "srun ddprun --nproc-per-node=2 --no-python bash -c 'trap \"\" TERM; " + Worker() +
         " ignore:15 grandchild print:up wait; echo after'";
}

TEST_CASE("cgroup: a step ends by itself, and its node is as before") {
  const Result result = Run({.slurm = {}, .steps = {"print:{rank}"}});
  CHECK_MESSAGE(result.code == 0, result.err);
  CheckNodeIsUnharmed();
}

TEST_CASE("cgroup: scancel ends processes that ignore SIGTERM, after KillWait") {
  for (int i = 0; i < 3; ++i) {
    const Batch batch({}, Wrapped());
    REQUIRE_MESSAGE(batch.WaitForOut("up\n", 2), batch.out());
    Output({"/usr/bin/scancel", batch.id()});
    CHECK(Ending(batch.id()) == "CANCELLED by 0 0:0");
    CheckNodeIsUnharmed();
  }
}

TEST_CASE("cgroup: a step that is killed") {
  for (int i = 0; i < 3; ++i) {
    const Batch batch({}, Wrapped());
    REQUIRE_MESSAGE(batch.WaitForOut("up\n", 2), batch.out());
    Output({"/usr/bin/scancel", "-s", "KILL", batch.id() + ".0"});
    CHECK(Ending(batch.id() + ".0") == "CANCELLED 0:9");
    CheckNodeIsUnharmed();
  }
}

}  // namespace
}  // namespace ddprun::slurm
