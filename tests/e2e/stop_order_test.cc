// A stop reaches a worker before the processes that it has started: they must not die before its
// emergency checkpoint is written.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

// A worker that on SIGTERM asks the process that it has started (a DataLoader's, say) for what is
// still missing, saves it, and ends. Its helper dies of SIGTERM, and nobody answers then.
constexpr char kSavesWithHelper[] = R"(cd "$1" || exit 9
me=$RANK.$TORCHELASTIC_RESTART_COUNT
mkfifo asked.$me answer.$me
bash -c "read line <asked.$me && echo batch >answer.$me; sleep 600" &
trap 'echo more >asked.$me; read batch <answer.$me && echo $batch >saved.$me; exit 0' TERM
touch up.$me
if [ $me = 1.0 ] && [ -n "$2" ]; then until [ -e up.0.0 ]; do sleep 0.01; done; exit 3; fi
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
for ((;;)); do sleep 600 & wait $!; done
)";

// A worker that notes each SIGTERM and goes on until its helper has noted one, too.
constexpr char kGoesOn[] = R"(cd "$1" || exit 9
bash -c 'trap "touch helper_told; exit 0" TERM; touch helper_up; while :; do sleep 0.01; done' &
trap 'echo told >>leader_told' TERM
until [ -e helper_up ]; do sleep 0.01; done
touch up
until [ -e helper_told ]; do sleep 0.01; done
)";

Node Start(Job& job, const char* script, std::vector<std::string> options, const char* how = "") {
  const std::string path = job.File("worker.sh");
  WriteFile(path, script);
  options.insert(options.end(), {"--no-python", "/bin/bash", path, job.File("."), how});
  return job.RunRaw(std::move(options));
}

// Long enough that half of it never comes.
constexpr char kLongGrace[] = "--shutdown-timeout=6000";

TEST_CASE("stop order: a worker that is stopped can still use its helpers") {
  Job job;
  const Node ddprun = Start(job, kSavesWithHelper, {"--nproc-per-node=2", kLongGrace});
  for (const char* up : {"up.0.0", "up.1.0"}) REQUIRE(job.WaitForFile(up));
  ddprun->Signal(SIGTERM);
  CHECK_MESSAGE(ddprun->Wait() == 128 + SIGTERM, ddprun->Describe());
  CHECK(ReadFile(job.File("saved.0.0")) == "batch\n");
  CHECK(ReadFile(job.File("saved.1.0")) == "batch\n");
}

TEST_CASE("stop order: so can one that is stopped for a restart") {
  Job job;
  const Node ddprun = Start(job, kSavesWithHelper,
                            {"--nproc-per-node=2", "--max-restarts=1", kLongGrace}, "rank 1 fails");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ReadFile(job.File("saved.0.0")) == "batch\n");
}

TEST_CASE("stop order: at half of the grace the helpers are told, and the worker not again") {
  Job job;
  const Node ddprun = Start(job, kGoesOn, {"--shutdown-timeout=8"});
  REQUIRE(job.WaitForFile("up"));
  ddprun->Signal(SIGTERM);
  CHECK_MESSAGE(ddprun->Wait() == 128 + SIGTERM, ddprun->Describe());
  CHECK(job.HasFile("helper_told"));
  CHECK(ReadFile(job.File("leader_told")) == "told\n");
  CHECK(ddprun->err() != Contains("did not end within"));
}

}  // namespace
}  // namespace ddprun::testing
