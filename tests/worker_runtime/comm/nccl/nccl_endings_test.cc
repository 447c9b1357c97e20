// Ends of a group on GPUs in which something does not answer any more: the driver, or a rank that
// is gone when NCCL waits for it.
#include <cstdlib>
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/base/steady_clock.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using ddp::DType;
using ddp::ReduceOp;

constexpr auto kTimeout = 3s;
// What a test waits for at the most; NCCL's own end waits 30 s for a rank that does not come.
constexpr auto kSoon = 20s;

// Rank 1's driver falls silent behind its second operation: the rank's own threads hang in it.
TEST_CASE("nccl: a rank whose driver does not answer ends, and the others are told which it is") {
  const TempDir temp;
  RankProcesses ranks(
      {.world_size = 2,
       .env = DoubleEnv({{"DDPRUN_FLIGHT_RECORDER_DIR", temp.path()}}),
       .env_of_rank = {}},
      [](int rank) {
        const auto group = GpuGroup();
        ddp::Communicator& comm = group->communicator();
        DeviceArray data({1, 2, 3});
        absl::Status status;
        for (int i = 1; status.ok(); ++i) {
          if (i == 3) comm.SetTimeout(kTimeout);
          if (i == 3 && rank == 1) SilenceDriver();
          status = comm.AllReduce(data.data(), 3, DType::kFloat32, ReduceOp::kSum)->Wait();
        }
        RankProcesses::Say(status.ToString());
        return 0;
      });
  const std::string words = ranks.Hear(0);
  CAPTURE(words);
  CHECK(words.find(" timed out after 3 s: rank 1") != std::string::npos);
  CHECK(ranks.Await(0) == 0);
  CHECK(ranks.Hear(1) == "");
  CHECK(ranks.Await(1) == EXIT_FAILURE);
}

// Until the double's log has `line`; false after a while.
bool AwaitLog(const std::string& line) {
  const TimePoint deadline = SteadyNow() + kSoon;
  while (ReadFile(std::getenv("DDPRUN_DOUBLE_LOG")).find(line) == std::string::npos) {
    if (SteadyNow() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Rank 0 ends its group, the other has aborted it, `before` that or once it has begun.
void CheckEndBesideAbort(bool before) {
  const TempDir temp;
  const auto env = DoubleEnv({{"DDPRUN_DOUBLE_LOG", temp.File("log")}});
  const std::string codes = RunOnDouble(2, env, [before](int rank) {
    auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    if (rank == 1) {
      if (!before && !AwaitLog("rank=0 finalize")) return 1;
      comm.Abort("for a test");
      return 0;
    }
    const TimePoint deadline = SteadyNow() + kSoon;
    while (before && comm.host().error().ok()) {
      if (SteadyNow() > deadline) return 2;
    }
    const TimePoint begin = SteadyNow();
    group.reset();
    return SteadyNow() - begin < kSoon ? 0 : 3;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("nccl: the end of a group does not wait for a rank that has aborted it") {
  CheckEndBesideAbort(/*before=*/true);
}

TEST_CASE("nccl: the end of a group goes on when another rank aborts it") {
  CheckEndBesideAbort(/*before=*/false);
}

}  // namespace
}  // namespace ddprun::testing
