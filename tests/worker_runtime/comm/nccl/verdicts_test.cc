// Whom a group on GPUs blames, and that it blames nobody where all is well.
#include <doctest/doctest.h>

#include "tests/support/subprocess.h"
#include "tests/worker_runtime/comm/nccl/graph_training.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using ddp::DType;
using ddp::ReduceOp;

std::unique_ptr<ddp::Work> ReduceOne(const GraphTraining& training) {
  return training.communicator().AllReduce(training.parameter(0).data(), 1, DType::kFloat32,
                                           ReduceOp::kSum, training.stream());
}

TEST_CASE("verdicts: a job that runs ahead of its GPU for longer than the timeout is well") {
  const auto codes = RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "slow=100"}}), [](int) {
    const GraphTraining training;
    training.communicator().SetTimeout(3s);
    for (int i = 0; i < 39; ++i) ReduceOne(training);
    const absl::Status last = ReduceOne(training)->Wait();
    EXPECT(Has(last.ToString(), "OK"));
    return 0;
  });
  CHECK(codes == "0 0");
}

// The fifth waits for the first, which hangs: an abort waits for what was launched.
TEST_CASE("verdicts: four replays are in flight at most") {
  const auto codes = RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "hang=13"}}), [](int) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    EXPECT(training.graph().Capture(training.step()).ok());
    training.communicator().SetTimeout(3s);
    int launched = 0;
    while (launched < 100 && training.graph().Replay().ok()) ++launched;
    EXPECT(launched == 4);
    EXPECT(Has(training.AwaitEnd().ToString(), "graph replay #16 (3 operations) timed out"));
    return 0;
  });
  CHECK(codes == "0 0");
}

// It ends on rank 0 while a step is captured there, and never on rank 1.
TEST_CASE("verdicts: what ended during a discarded capture has ended") {
  const auto codes =
      RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "slow=200,stays=13@1"}}), [](int rank) {
        GraphTraining training;
        EXPECT(training.WarmUp());
        training.communicator().SetTimeout(4s);
        const auto before = ReduceOne(training);
        const absl::Status status = training.graph().Capture([&] {
          const bool has_ended = rank == 1 || Eventually([&] { return before->IsDone(); });
          return absl::UnknownError(has_ended ? "no" : "it does not end");
        });
        EXPECT(Has(status.ToString(), "rank 0: no"));
        EXPECT(Has(training.AwaitEnd().ToString(),
                   "all-reduce #13 (float32 x 1, sum) timed out after 4 s: all ranks are in it or "
                   "through it"));
        return 0;
      });
  CHECK(codes == "0 0");
}

TEST_CASE("verdicts: ranks that wait are not missing, whatever their own timeouts") {
  const auto codes = RunOnDouble(4, DoubleEnv(), [](int rank) {
    const GraphTraining training;
    training.communicator().SetTimeout(rank == 0 ? 4s : 600s);
    if (rank != 3) ReduceOne(training);
    EXPECT(Has(training.AwaitEnd().ToString(), " timed out after 4 s: rank 3 did not arrive"));
    return 0;
  });
  CHECK(codes == "0 0 0 0");
}

}  // namespace
}  // namespace ddprun::testing
