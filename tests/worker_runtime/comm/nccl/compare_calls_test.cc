// Ranks that make different calls which NCCL completes all the same, with garbage.
#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/worker_runtime/comm/nccl/graph_training.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using ddp::DType;
using ddp::ReduceOp;

// The call of one rank, by its number from 1.
using Call =
    std::function<void(ddp::Communicator& communicator, float* data, int rank, int number)>;

// What each of three ranks says behind ten calls; "OK" when all is well. Rank 2 alone asks for the
// comparison, by `level`.
std::vector<std::string> Say(const Call& call, const std::string& level = "DETAIL") {
  const auto env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "lenient"}});
  const auto of_rank = [&](int rank) {
    return std::map<std::string, std::string>{
        {"TORCH_DISTRIBUTED_DEBUG", rank == 2 ? level : "OFF"}};
  };
  RankProcesses ranks({.world_size = 3, .env = env, .env_of_rank = of_rank}, [&](int rank) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    comm.SetTimeout(3s);
    DeviceArray data({1, 2});
    for (int number = 1; number <= 10; ++number) call(comm, data.data(), rank, number);
    RankProcesses::Say(comm.error().ToString());
    return comm.error().ok() && !group->Shutdown().ok() ? 1 : 0;
  });
  std::vector<std::string> said;
  for (int rank = 0; rank < 3; ++rank) {
    said.push_back(ranks.Hear(rank));
    CHECK(ranks.Await(rank) == 0);
  }
  return said;
}

absl::Status Sum(ddp::Communicator& communicator, float* data, DType dtype = DType::kFloat32) {
  return communicator.AllReduce(data, 2, dtype, ReduceOp::kSum)->Wait();
}

TEST_CASE("compare calls: ranks that make the same calls go on") {
  const auto said = Say([](auto& comm, float* data, int rank, int number) {
    // A rank's own affair.
    if (number != 5) return Sum(comm, data).IgnoreError();
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    comm.SendReceive(data, next, data + 1, previous, 1, DType::kFloat32)->Wait().IgnoreError();
  });
  CHECK(said == std::vector<std::string>(3, "OK"));
}

TEST_CASE("compare calls: nothing is compared unless it is asked for") {
  const auto other = [](auto& comm, float* data, int rank, int number) {
    Sum(comm, data, rank == 1 && number == 3 ? DType::kInt32 : DType::kFloat32).IgnoreError();
  };
  CHECK(Say(other, "INFO") == std::vector<std::string>(3, "OK"));
}

TEST_CASE(
    "call comparison: a rank that calls another operation is named before anything is reduced") {
  const std::string all = "INVALID_ARGUMENT: the ranks call different operations: ";
  const std::string sum = "rank 0 all-reduce #";
  const std::string rule =
      "; all ranks make the same calls in the same order, those within DistributedDataParallel and "
      "checkpoints too";
  const auto said = Say([](auto& comm, float* data, int rank, int number) {
    Sum(comm, data, rank == 1 && number == 3 ? DType::kInt32 : DType::kFloat32).IgnoreError();
  });
  CHECK(said ==
        std::vector<std::string>(
            3, all + sum + "3 (float32 x 2, sum), rank 1 all-reduce #3 (int32 x 2, sum)" + rule));
  const auto average = Say([](auto& comm, float* data, int rank, int) {
    comm.AllReduce(data, 2, DType::kFloat32, rank == 2 ? ReduceOp::kAverage : ReduceOp::kSum);
  });
  CHECK(average ==
        std::vector<std::string>(
            3, all + sum + "1 (float32 x 2, sum), rank 2 all-reduce #1 (float32 x 2, average)" +
                   rule));
}

TEST_CASE("compare calls: a rank that makes no call is named after the timeout") {
  const auto said = Say([](auto& comm, float* data, int rank, int number) {
    if (rank != 1) return Sum(comm, data).IgnoreError();
    while (number == 10 && comm.error().ok()) std::this_thread::yield();
  });
  for (const std::string& words : said) {
    CAPTURE(words);
    CHECK(words == Contains("rank 1"));
    CHECK(words == Contains("timed out"));
  }
}

// A graph's operations are compared when it is captured; the next call is compared again.
TEST_CASE("compare calls: captures and replays pass, and what comes after them is compared") {
  const auto env =
      DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "lenient"}, {"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
  const std::string codes = RunOnDouble(2, env, [](int rank) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    const absl::Status captured = training.graph().Capture([&]() -> absl::Status {
      // What is called before it fails differs between the ranks.
      if (absl::Status status = training.Step(); !status.ok()) return status;
      if (rank == 1) Sum(training.communicator(), training.parameter(0).data()).IgnoreError();
      return absl::UnknownError("no");
    });
    EXPECT(!captured.ok());
    EXPECT(training.graph().Capture(training.step()).ok());
    EXPECT(training.Replay(4));
    float* const data = training.parameter(0).data();
    EXPECT(Sum(training.communicator(), data).ok());
    Sum(training.communicator(), data, rank == 1 ? DType::kInt32 : DType::kFloat32).IgnoreError();
    EXPECT(Has(training.communicator().error().ToString(), "the ranks call different operations"));
    EXPECT(Has(Sum(training.communicator(), data).ToString(),
               "FAILED_PRECONDITION: the group has ended before this call: the ranks call"));
    return 0;
  });
  CHECK(codes == "0 0");
}

// What both ranks hear where rank 1 makes another `call` behind two replays of three operations.
std::string SayBehindReplays(const std::function<void(GraphTraining&)>& call) {
  const auto env =
      DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "lenient"}, {"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
  RankProcesses ranks({.world_size = 2, .env = env, .env_of_rank = {}}, [&](int rank) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    EXPECT(training.graph().Capture(training.step()).ok());
    EXPECT(training.Replay(4));
    EXPECT(training.Replay(5));
    if (rank == 1) call(training);
    if (rank == 0) training.graph().Replay().IgnoreError();
    RankProcesses::Say(training.AwaitEnd().ToString());
    return 0;
  });
  const std::string said = ranks.Hear(0);
  CHECK(ranks.Hear(1) == said);
  return said;
}

TEST_CASE("compare calls: a rank that does not replay, or replays once more, is named") {
  CHECK(
      SayBehindReplays([](GraphTraining& training) {
        Sum(training.communicator(), training.parameter(0).data()).IgnoreError();
      }) ==
      Contains("rank 0 graph replay #22 (3 operations), rank 1 all-reduce #22 (float32 x 2, sum)"));
}

}  // namespace
}  // namespace ddprun::testing
