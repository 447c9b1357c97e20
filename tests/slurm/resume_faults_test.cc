// A training whose time runs out, or whose node falls, goes on from its checkpoint: minutes.
#include <doctest/doctest.h>

#include <string>

#include "tests/slurm/lab.h"
#include "tests/slurm/training.h"

namespace ddprun::slurm {
namespace {

TEST_CASE("resume: time is nearly over, and the script queues the job again") {
  Training training;
  const Batch batch({"-N2", "--requeue", "--time=1", "--signal=USR1@50"}, training.Script());
  REQUIRE_MESSAGE(training.WaitForSteps(45), batch.out());
  REQUIRE_MESSAGE(batch.WaitForOut("SIGUSR1: asked the workers of this node", 2), batch.out());
  training.LetGo();
  REQUIRE_MESSAGE(batch.WaitForOut("srun ended with 99\n"), batch.out());
  training.CheckGoesOn(batch);
  CHECK(Endings(batch.id() + ".0", 2) == Words{"FAILED 99:0", "COMPLETED 0:0"});
  training.CheckIsAsUndisturbed();
}

TEST_CASE("resume: time is over, and another job goes on") {
  Training training;
  const Batch batch({"-N2", "--time=1"}, training.Line(""));
  REQUIRE_MESSAGE(training.WaitForSteps(45), batch.out());
  CHECK(Ending(batch.id()) == "TIMEOUT 0:0");
  CHECK(Ending(batch.id() + ".0") == "FAILED 15:0");
  training.CheckAnotherGoesOn();
}

TEST_CASE("resume: a node falls, the job ends, and another one goes on without that node") {
  Training training;
  const auto srun = training.Start({"-N2", "-w", "n2,n3", "--no-kill"});
  REQUIRE_MESSAGE(training.WaitForSteps(45), srun->Describe());
  const CutNode cut("3");
  REQUIRE_MESSAGE(srun->WaitForErr("exit code 121: node n3 is lost"), srun->Describe());
  CHECK_MESSAGE(srun->Wait() == 121, srun->Describe());
  CHECK(Ending(JobOf(srun->err())) == "FAILED 121:0");
  training.CheckAnotherGoesOn();
}

// The batch script runs on the first node of a job, and falls with it.
TEST_CASE("resume: a node falls, and Slurm queues the job again") {
  for (const std::string node : {"2", "1"}) {
    CAPTURE(node);
    Training training;
    const Batch batch({"-N2", "--requeue"}, training.Script());
    REQUIRE_MESSAGE(training.WaitForSteps(45), batch.out());
    const CutNode cut(node);
    training.CheckGoesOn(batch);
    CHECK(Endings(batch.id(), 2) == Words{"NODE_FAIL 0:0", "COMPLETED 0:0"});
    CHECK(Endings(batch.id() + ".0", 2) == Words{"FAILED 121:0", "COMPLETED 0:0"});
    training.CheckIsAsUndisturbed();
  }
}

}  // namespace
}  // namespace ddprun::slurm
