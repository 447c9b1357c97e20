// A node of the job falls, or the job's time runs out. The cases take minutes.
#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "tests/slurm/lab.h"
#include "tests/support/contains.h"

namespace ddprun::slurm {
namespace {

using testing::Eventually;

TEST_CASE("faults: time runs out, and the workers have Slurm's KillWait") {
  const Batch batch({"-N2", "--time=1"}, Srun("", "block:15 print:up await:15 print:saved"));
  REQUIRE_MESSAGE(batch.WaitForOut("up\n", 2), batch.out());
  CHECK(Ending(batch.id()).starts_with("TIMEOUT"));
  CHECK_MESSAGE(CountOf(batch.out(), "saved\n") == 2, batch.out());
  CheckNothingIsLeft();
}

TEST_CASE("faults: a node of a job of fixed size falls, and the others name it") {
  const auto srun = Start({.slurm = {"-N4", "--no-kill"}, .steps = {"print:up", "wait"}});
  REQUIRE_MESSAGE(WaitForCount(*srun, "up\n", 4), srun->Describe());
  {
    const CutNode cut("3");
    REQUIRE_MESSAGE(srun->WaitForErr("exit code 121: node n3 is lost"), srun->Describe());
    CHECK_MESSAGE(srun->Wait(), srun->Describe());
  }
  CheckNextJobTidies(1);
}

TEST_CASE("faults: a job of two to four nodes goes on without the node that falls") {
  const auto srun = Start({.slurm = {"-N4", "--no-kill"},
                           .options = {"--nnodes=2:4", "--max-restarts=1"},
                           .steps = {"env:WORLD_SIZE", "wait"}});
  REQUIRE_MESSAGE(WaitForCount(*srun, "WORLD_SIZE=4\n", 4), srun->Describe());
  {
    const CutNode cut("3");
    REQUIRE_MESSAGE(WaitForCount(*srun, "WORLD_SIZE=3\n", 3), srun->Describe());
    srun->Signal(SIGTERM);
    CHECK_MESSAGE(srun->Wait(), srun->Describe());
  }
  CheckNextJobTidies(4);
}

TEST_CASE("faults: the head falls, and the others end") {
  const auto srun = Start({.slurm = {"-N4", "--no-kill"}, .steps = {"print:up", "wait"}});
  REQUIRE_MESSAGE(WaitForCount(*srun, "up\n", 4), srun->Describe());
  {
    const CutNode cut("1");
    REQUIRE_MESSAGE(Eventually([&] {
                      return CountOf(srun->err(), "with it the ranks of node n1 are gone") == 3;
                    }),
                    srun->Describe());
    CHECK_MESSAGE(srun->Wait() == 121, srun->Describe());
  }
  CheckNextJobTidies(1);
}

}  // namespace
}  // namespace ddprun::slurm
