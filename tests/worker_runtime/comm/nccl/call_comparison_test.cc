// Ranks that make different calls which NCCL completes all the same, with garbage.
#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/graph_training.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::ReduceOp;

constexpr int kCompared = 8;  // the first call behind which the ranks compare what they called

// The call of one rank, by its number from 1.
using Call =
    std::function<void(ddp::Communicator& communicator, float* data, int rank, int number)>;

// What each of three ranks says behind `calls` calls; "OK" when all is well. Rank 2 alone asks for
// the comparison, by `level`.
std::vector<std::string> Say(const std::string& folder, int calls, const Call& call,
                             const std::string& level = "DETAIL") {
  const auto env =
      DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "lenient"}, {"DDPRUN_FLIGHT_RECORDER_DIR", folder}});
  const auto of_rank = [&](int rank) {
    return std::map<std::string, std::string>{
        {"TORCH_DISTRIBUTED_DEBUG", rank == 2 ? level : "OFF"}};
  };
  RankProcesses ranks({.world_size = 3, .env = env, .env_of_rank = of_rank}, [&](int rank) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    DeviceArray data({1, 2});
    for (int number = 1; number <= calls; ++number) call(comm, data.data(), rank, number);
    // An all-reduce that is alike on all ranks, so that none ends while others are compared.
    const auto last = comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum)->Wait();
    RankProcesses::Say(last.ToString());
    return last.ok() && !group->Shutdown().ok() ? 1 : 0;
  });
  std::vector<std::string> said;
  for (int rank = 0; rank < 3; ++rank) {
    said.push_back(ranks.Hear(rank));
    CHECK(ranks.Await(rank) == 0);
  }
  return said;
}

void Sum(ddp::Communicator& communicator, float* data, DType dtype = DType::kFloat32) {
  communicator.AllReduce(data, 2, dtype, ReduceOp::kSum)->Wait().IgnoreError();
}

TEST_CASE("call comparison: ranks that make the same calls go on") {
  const TempDir temp;
  const auto said = Say(temp.path(), 100, [](auto& comm, float* data, int rank, int number) {
    // A rank's own affair.
    if (number != 5) return Sum(comm, data);
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    comm.SendReceive(data, next, data + 1, previous, 1, DType::kFloat32)->Wait().IgnoreError();
  });
  CHECK(said == std::vector<std::string>(3, "OK"));
}

TEST_CASE("call comparison: nothing is compared unless it is asked for") {
  const TempDir temp;
  const auto other = [](auto& comm, float* data, int rank, int number) {
    Sum(comm, data, rank == 1 && number == 3 ? DType::kInt32 : DType::kFloat32);
  };
  CHECK(Say(temp.path(), kCompared, other, "INFO") == std::vector<std::string>(3, "OK"));
}

TEST_CASE("call comparison: a rank with another type is named, and what it called is recorded") {
  const TempDir temp;
  const auto said = Say(temp.path(), kCompared, [](auto& comm, float* data, int rank, int number) {
    Sum(comm, data, rank == 1 && number == 3 ? DType::kInt32 : DType::kFloat32);
  });
  for (const std::string& words : said) {
    CAPTURE(words);
    CHECK(words.starts_with("DATA_LOSS: "));
    CHECK(
        words.find("rank 1 made other calls than rank 0 somewhere in #1 to #8 (another kind, type, "
                   "reduction, count or root)") != std::string::npos);
    const std::string before = " are in ";
    const std::string record = ReadFile(words.substr(words.rfind(before) + before.size()));
    CHECK(record.find("all-reduce (float32 x 2, sum)") != std::string::npos);
  }
  CHECK(
      ReadFile(said[1].substr(said[1].rfind(" are in ") + 8)).find("all-reduce (int32 x 2, sum)") !=
      std::string::npos);
}

TEST_CASE("call comparison: what came after one comparison is found by the next") {
  const TempDir temp;
  const auto said =
      Say(temp.path(), kCompared * kCompared, [](auto& comm, float* data, int rank, int number) {
        const bool is_other = rank == 0 && number == 20;
        comm.AllReduce(data, 2, DType::kFloat32, is_other ? ReduceOp::kAverage : ReduceOp::kSum)
            ->Wait()
            .IgnoreError();
      });
  for (const std::string& words : said) {
    CAPTURE(words);
    CHECK(words.find("rank 0 made other calls than rank 1 somewhere in #9 to #64") !=
          std::string::npos);
  }
}

constexpr int kThreshold = kCompared * kCompared;

// Uncaptured calls up to #`last`; rank 1's is of another type in number `other`. How the group is
// then.
absl::Status SumUntil(const GraphTraining& training, int rank, int first, int last, int other = 0) {
  for (int number = first; number <= last; ++number) {
    training.communicator()
        .AllReduce(training.parameter(0).data(), 2,
                   rank == 1 && number == other ? DType::kInt32 : DType::kFloat32, ReduceOp::kSum,
                   training.stream())
        ->Wait()
        .IgnoreError();
  }
  return training.communicator().error();
}

TEST_CASE("call comparison: what a discarded capture called is forgotten") {
  const auto env =
      DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "lenient"}, {"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
  const std::string codes = RunOnDouble(2, env, [](int rank) {
    GraphTraining training;
    EXPECT(training.WarmUp());  // twelve calls
    const absl::Status captured = training.graph().Capture([&]() -> absl::Status {
      // What is in flight when it fails differs between the ranks.
      if (absl::Status status = training.Step(); !status.ok()) return status;
      if (rank == 1) {
        training.communicator().AllReduce(training.parameter(0).data(), 1, DType::kFloat32,
                                          ReduceOp::kSum, training.stream());
      }
      return absl::UnknownError("no");
    });
    EXPECT(!captured.ok());
    EXPECT(Has(SumUntil(training, rank, 13, kThreshold + 1).ToString(), "OK"));
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("call comparison: a graph that runs past a comparison does not skip it") {
  const TempDir temp;
  const auto env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "lenient"},
                              {"TORCH_DISTRIBUTED_DEBUG", "DETAIL"},
                              {"DDPRUN_FLIGHT_RECORDER_DIR", temp.path()}});
  const std::string codes = RunOnDouble(2, env, [](int rank) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    EXPECT(training.graph().Capture(training.step()).ok());  // #13 to #15
    EXPECT(SumUntil(training, rank, 16, 18, 17).ok());
    for (int i = 0; i < kThreshold / GraphTraining::kParameters; ++i) {
      EXPECT(training.graph().Replay().ok());
    }
    const std::string end = SumUntil(training, rank, 1, 2).ToString();
    EXPECT(Has(end, "rank 1 made other calls than rank 0 somewhere in #9 to #"));
    return 0;
  });
  CHECK(codes == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
