// How a job ends, or loses its nodes, and that nothing of it is left on any.
#include <doctest/doctest.h>

#include <string>

#include "tests/slurm/lab.h"
#include "tests/support/contains.h"

namespace ddprun::slurm {
namespace {

TEST_CASE("endings: sacct tells the worker's code, or 128+n, on the head as elsewhere") {
  for (const std::string rank : {"0", "2"}) {
    CAPTURE(rank);
    const Batch exits({"-N3"}, Srun("", "exit:7@" + rank + " wait"));
    CHECK(Ending(exits.id()) == "FAILED 7:0");
    CHECK(Ending(exits.id() + ".0") == "FAILED 7:0");
    const Batch dies({"-N3"}, Srun("", "die:11@" + rank + " wait"));
    CHECK(Ending(dies.id()) == "FAILED 11:0");  // Slurm shows the last seven bits: 139
  }
  CheckNothingIsLeft();
}

TEST_CASE("endings: a job that is cancelled while its nodes gather") {
  const Batch batch({"-N4"}, "srun bash -c '[[ $SLURM_NODEID == 3 ]] && sleep 300; exec ddprun " +
                                 Worker() + " wait'");
  REQUIRE_MESSAGE(batch.WaitForOut("waiting for 1 more"), batch.out());
  Output({"/usr/bin/scancel", batch.id()});
  CHECK(Ending(batch.id()) == "CANCELLED by 0 0:0");
  CheckNothingIsLeft();
}

TEST_CASE("endings: a job that is cancelled while its workers run, and again while they stop") {
  const Batch batch({"-N4"}, Srun("", "ignore:15 print:up wait"));
  REQUIRE_MESSAGE(batch.WaitForOut("up\n", 4), batch.out());
  Output({"/usr/bin/scancel", batch.id()});
  REQUIRE_MESSAGE(batch.WaitForOut("stopping rank", 4), batch.out());
  Output({"/usr/bin/scancel", batch.id()});
  CHECK(Ending(batch.id()) == "CANCELLED by 0 0:0");
  CheckNextJobTidies(4, {"-N4"});
}

TEST_CASE("endings: the daemon of a step is killed, and the step's processes end") {
  const auto srun = Start({.slurm = {"-N2", "-J", "orphaned"}, .steps = {"print:up", "wait"}});
  REQUIRE_MESSAGE(WaitForCount(*srun, "up\n", 2), srun->Describe());
  for (const std::string& pid : SortedLines(Output({"/usr/bin/pgrep", "slurmstepd"}))) {
    Output({"/bin/kill", "-9", pid});
  }
  CheckNothingIsLeft();
  Output({"/usr/bin/scancel", "-n", "orphaned"});
  CHECK_MESSAGE(srun->Wait(), srun->Describe());
}

TEST_CASE("endings: a requeued job begins anew under an id of its own") {
  const Batch batch({"-N2", "--requeue"},
                    Srun("", "env:TORCHELASTIC_RUN_ID@0 until:$SLURM_RESTART_COUNT"));
  REQUIRE_MESSAGE(batch.WaitForOut("TORCHELASTIC_RUN_ID=" + batch.id() + ".0.0"), batch.out());
  Output({"/usr/bin/scontrol", "requeue", batch.id()});
  batch.StartAgain();
  REQUIRE_MESSAGE(batch.WaitForOut("TORCHELASTIC_RUN_ID=" + batch.id() + ".0.1"), batch.out());
  Output({"/usr/bin/scancel", batch.id()});
  CheckNothingIsLeft();
}

TEST_CASE("endings: workers that are asked to stop do, and the script requeues the job") {
  const Batch batch(
      {"-N2", "--requeue"},
      Srun("--preempt-signal=USR1 --requeue-code=99",
           "print:up ${SLURM_RESTART_COUNT:+exit:0} asked") +
          "\ncode=$?\n[ $code -eq 99 ] && scontrol requeue $SLURM_JOB_ID\nexit $code");
  REQUIRE_MESSAGE(batch.WaitForOut("up\n", 2), batch.out());
  Output({"/usr/bin/scancel", "-s", "USR1", batch.id()});
  REQUIRE_MESSAGE(batch.WaitForOut("exit code 99: graceful stop by SIGUSR1", 2), batch.out());
  batch.StartAgain();
  REQUIRE_MESSAGE(batch.WaitForOut("up\n", 4), batch.out());
  CHECK(Ending(batch.id()) == "COMPLETED 0:0");
  CheckNothingIsLeft();
}

TEST_CASE("endings: a job of a better partition takes the nodes, and the workers have the grace") {
  const Batch low({"-N4", "-n4", "-c8", "--requeue"},
                  Srun("", "block:15 print:up await:15 print:saved"));
  REQUIRE_MESSAGE(low.WaitForOut("up\n", 4), low.out());
  const Batch high({"-N4", "-n4", "-c8", "-p", "high"}, Srun("", "print:high"));
  CHECK(Ending(high.id()) == "COMPLETED 0:0");
  CHECK_MESSAGE(CountOf(low.out(), "saved\n") == 4, low.out());
  // 143; or the workers had ended before ddprun got its own SIGTERM. Either way the script ended
  // before Slurm requeued it.
  const std::string ending = Ending(low.id());
  CHECK_MESSAGE((ending == "FAILED 15:0" || ending == "COMPLETED 0:0"), ending);
  CheckNothingIsLeft();
}

TEST_CASE("endings: the tasks of an array are jobs of their own on the same nodes") {
  const Batch batch({"-N2", "--array=0-2"}, Srun("", "env:WORLD_SIZE"));
  for (const std::string task : {"_0", "_1", "_2"}) {
    CHECK(Ending(batch.id() + task) == "COMPLETED 0:0");
  }
  CHECK_MESSAGE(CountOf(batch.out(), "WORLD_SIZE=2\n") == 6, batch.out());
  CheckNothingIsLeft();
}

}  // namespace
}  // namespace ddprun::slurm
