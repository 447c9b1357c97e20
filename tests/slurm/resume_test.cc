// A training that Slurm stops goes on from its checkpoint, to the bits of one that nobody stopped.
#include <doctest/doctest.h>

#include <string>

#include "tests/slurm/lab.h"
#include "tests/slurm/training.h"

namespace ddprun::slurm {
namespace {

TEST_CASE("resume: a job that is cancelled, and another one that goes on") {
  Training training;
  const auto srun = training.Start({"-N2", "-J", "cancelled"});
  REQUIRE_MESSAGE(training.WaitForSteps(45), srun->Describe());
  const std::string job = JobOf(srun->err());
  Output({"/usr/bin/scancel", job});
  CHECK_MESSAGE(srun->Wait() == 143, srun->Describe());
  CHECK(Ending(job) == "CANCELLED by 0 0:0");
  CHECK(Ending(job + ".0") == "FAILED 15:0");  // the last seven bits of 143
  training.CheckAnotherGoesOn();
}

TEST_CASE("resume: a job that is requeued goes on from its last checkpoint") {
  Training training;
  const Batch batch({"-N2", "--requeue"}, training.Line(""));
  REQUIRE_MESSAGE(training.WaitForSteps(45), batch.out());
  Output({"/usr/bin/scontrol", "requeue", batch.id()});
  training.CheckGoesOn(batch);
  CHECK(Endings(batch.id() + ".0", 2) == Words{"FAILED 15:0", "COMPLETED 0:0"});
  training.CheckIsAsUndisturbed();
}

TEST_CASE("resume: a job that is asked to stop goes on from that very step") {
  Training training;
  const Batch batch({"-N2", "--requeue"}, training.Script());
  REQUIRE_MESSAGE(training.WaitForSteps(45), batch.out());
  Output({"/usr/bin/scancel", "-s", "USR1", batch.id()});
  REQUIRE_MESSAGE(batch.WaitForOut("asked the workers of this node", 2), batch.out());
  training.LetGo();
  REQUIRE_MESSAGE(batch.WaitForOut("srun ended with 99\n"), batch.out());
  training.CheckGoesOn(batch);
  CHECK(Endings(batch.id() + ".0", 2) == Words{"FAILED 99:0", "COMPLETED 0:0"});
  training.CheckIsAsUndisturbed();
}

TEST_CASE("resume: a job whose nodes a better partition takes saves, and goes on after it") {
  Training training;
  const Batch low({"-N2", "-n2", "-c8", "--requeue", "--signal=USR1@60"}, training.Script());
  REQUIRE_MESSAGE(training.WaitForSteps(45), low.out());
  const Batch high({"-N4", "-n4", "-c8", "-p", "high"}, Srun("", "print:high"));
  REQUIRE_MESSAGE(low.WaitForOut("asked the workers of this node", 2), low.out());
  training.LetGo();
  REQUIRE_MESSAGE(low.WaitForOut("srun ended with 99\n"), low.out());
  CHECK(Ending(high.id()) == "COMPLETED 0:0");
  training.CheckGoesOn(low);
  CHECK(Endings(low.id() + ".0", 2) == Words{"FAILED 99:0", "COMPLETED 0:0"});
  training.CheckIsAsUndisturbed();
}

}  // namespace
}  // namespace ddprun::slurm
