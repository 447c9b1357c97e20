// The port that a step's nodes have agreed on is somebody else's on the head.
#include <doctest/doctest.h>

#include <string>

#include "tests/slurm/lab.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"

namespace ddprun::slurm {
namespace {

using testing::Runfile;
using testing::Subprocess;

// A job of two nodes in whose first port, $port, `holder` listens on the head before ddprun starts.
void CheckMeetsAtNext(const std::string& holder) {
  CAPTURE(holder);
  const std::string script =
      "port=${SLURM_STEP_RESV_PORTS%%[-,]*}\n"
      "if ((SLURM_NODEID == 0)); then\n" +
      holder +
      " >/dev/null 2>&1 &\n"
      "holder=$!\n"
      "until (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do :; done\n"
      "echo next=$((port + 1))\n"
      "fi\n"
      "DDPRUN_LOG_LEVEL=info " +
      Runfile("ddprun") + " " + Worker() +
      " print:{rank} env:WORLD_SIZE@0\n"
      "code=$?\n"
      "if ((SLURM_NODEID == 0)); then kill $holder && wait $holder; fi\n"
      "exit $code";
  Subprocess srun({"/usr/bin/srun", "-N2", "-w", "n1,n2", "/bin/bash", "-c", script});
  REQUIRE_MESSAGE(srun.Wait() == 0, srun.Describe());
  const Words lines = SortedLines(srun.out());
  REQUIRE_MESSAGE(lines.size() == 4, srun.Describe());
  CHECK(Words(lines.begin(), lines.end() - 1) == Words{"0", "1", "WORLD_SIZE=2"});
  CHECK(srun.err() == Contains("n1:" + lines[3].substr(5)));
  CheckNothingIsLeft();
}

TEST_CASE("ports: a program has the first one, and the nodes meet at the next") {
  CheckMeetsAtNext("python3 -m http.server $port");
}

TEST_CASE("ports: a program has it where the other nodes do not see it") {
  CheckMeetsAtNext("python3 -m http.server --bind 127.0.0.1 $port");
}

TEST_CASE("ports: another job has it, and nobody joins that") {
  CheckMeetsAtNext(Runfile("ddprun") + " coordinator --bind :$port --rdzv-id=another");
  CheckMeetsAtNext(Runfile("ddprun") + " coordinator --bind :$port");
}

}  // namespace
}  // namespace ddprun::slurm
