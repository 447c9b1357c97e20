// Uneven inputs against PyTorch's Join.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "tests/support/contains.h"
#include "tests/support/rank_threads.h"
#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/torch_ddp.h"

namespace ddp {
namespace {

using ddprun::testing::ThreadGroup;
using testing::ScriptStep;
using Kind = ScriptStep::Kind;

// `short_rank` has two batches fewer.
std::vector<ScriptStep> Uneven(Kind join, int short_rank) {
  ScriptStep last{Kind::kPass, {"0123", "0123"}};
  last.used[short_rank] = "-";
  const ScriptStep zero{Kind::kZeroGrad, {}}, both{Kind::kPass, {"0123", "3210"}};
  return {{join, {}}, both, zero, both, zero, last, zero, last};
}

TEST_CASE("join: gradients, buffers and the final model are torch's, for each divisor") {
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  testing::CheckAsTorch(Uneven(Kind::kJoinInitial, 1), "", {});
  testing::CheckAsTorch(Uneven(Kind::kJoinEffective, 0), "", {});
}

TEST_CASE("join: parameters without a gradient are torch's, too") {
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  const ScriptStep zero{Kind::kZeroGrad, {}};
  testing::CheckAsTorch({{Kind::kJoinEffective, {}},
                         {Kind::kPass, {"01", "12"}},
                         zero,
                         {Kind::kPass, {"02", "-"}},
                         {Kind::kPass, {"1", "-"}}},
                        "find_unused_parameters=1", {.find_unused_parameters = true});
}

// One parameter of one element.
struct Replica {
  explicit Replica(Communicator& communicator, DistributedDataParallelOptions options = {})
      : ddp(communicator, options) {
    ddp.AddParameter("w", &weight, 1, DType::kFloat32);
  }
  absl::Status Step() {
    if (absl::Status status = ddp.GradientReady(0); !status.ok()) return status;
    return ddp.Finish();
  }
  float weight = 0;
  DistributedDataParallel ddp;
};

TEST_CASE("join: ranks without any batch and a second join work") {
  ThreadGroup group(3);
  float weights[3] = {};
  group.Run([&weights](Communicator& communicator) {
    Replica replica(communicator);
    if (!replica.ddp.Finalize().ok()) return;
    for (int epoch = 0; epoch < 2; ++epoch) {
      auto join = replica.ddp.Join();
      if (!join.ok()) return;
      for (int step = 0; step < communicator.rank() * epoch; ++step) {
        // A refused gradient is none, and the pass is announced once all the same, and reduced.
        CHECK_FALSE(replica.ddp.GradientReady(99).ok());
        CHECK(replica.Step().message().find("a gradient of this pass was refused: ") == 0);
        replica.weight += 1;
      }
      if (!join->Wait().ok()) return;
      CHECK(join->Wait().code() == absl::StatusCode::kFailedPrecondition);
    }
    weights[communicator.rank()] = replica.weight;
  });
  for (const float weight : weights) CHECK(weight == 2);
}

TEST_CASE("join: a rank that leaves without Wait ends the group in words") {
  ThreadGroup group(2);
  absl::Status status;
  group.Run([&status](Communicator& communicator) {
    Replica replica(communicator);
    const absl::Status finalized = replica.ddp.Finalize();
    auto join = replica.ddp.Join();
    if (communicator.rank() == 1) return;
    status = finalized;  // the other rank may end it at any call
    if (status.ok()) status = join.status();
    if (status.ok()) status = join->Wait();
  });
  CHECK(status.code() == absl::StatusCode::kAborted);
  CHECK(status.message() == Contains("rank 1 has left a Join without Wait()"));
}

TEST_CASE("join: active ranks that do different things are told so") {
  ThreadGroup group(3);
  absl::Status statuses[3];
  group.Run([&statuses](Communicator& communicator) {
    Replica replica(communicator);
    if (!replica.ddp.Finalize().ok()) return;
    auto join = replica.ddp.Join();
    if (!join.ok()) return;
    absl::Status& status = statuses[communicator.rank()];
    if (communicator.rank() == 0) status = join->Wait();
    if (communicator.rank() == 1) status = replica.Step();
    if (communicator.rank() == 2) status = replica.ddp.BroadcastBuffers();
  });
  for (const absl::Status& status : statuses) {
    CHECK(status.message() == Contains("rank 1 begins a backward pass while rank 2 begins a "
                                       "broadcast of buffers"));
  }
}

TEST_CASE("join: ranks that divide by different numbers are told so") {
  ThreadGroup group(2);
  absl::Status statuses[2];
  group.Run([&statuses](Communicator& communicator) {
    Replica replica(communicator);
    if (!replica.ddp.Finalize().ok()) return;
    auto join = replica.ddp.Join(communicator.rank() == 0);
    if (join.ok()) statuses[communicator.rank()] = join->Wait();
  });
  for (const absl::Status& status : statuses) {
    CHECK(status.message() == Contains("Join: divide_by_initial_world_size is true on rank 0 and "
                                       "false on rank 1"));
  }
}

TEST_CASE("join: after it the next forward pass is alike on ranks that ended by different passes") {
  ThreadGroup group(2);
  float means[2] = {};
  group.Run([&means](Communicator& communicator) {
    const int rank = communicator.rank();
    float weight = 0, mean = 0;
    DistributedDataParallel ddp(communicator);
    ddp.AddParameter("w", &weight, 1, DType::kFloat32);
    ddp.AddBuffer("mean", &mean, 1, DType::kFloat32);
    if (!ddp.Finalize().ok()) return;
    auto join = ddp.Join();
    if (!join.ok()) return;
    // The last pass of rank 0 is under NoSync, that of rank 1 is not.
    for (int batch = 0; batch < 3 + rank; ++batch) {
      const auto guard = ddp.NoSync(batch % 2 == 0);
      if (!ddp.BroadcastBuffers().ok() || !ddp.GradientReady(0).ok() || !ddp.Finish().ok()) return;
    }
    if (!join->Wait().ok()) return;
    mean = 10.0F + static_cast<float>(rank);
    if (!ddp.BroadcastBuffers().ok() || !ddp.GradientReady(0).ok() || !ddp.Finish().ok()) return;
    means[rank] = mean;
  });
  CHECK(means[0] == 10);
  CHECK(means[1] == 10);
}

TEST_CASE("join: half-precision gradients are divided by the active ranks before they are summed") {
  uint16_t gradients[3] = {};
  constexpr uint16_t k40000 = 0x78e2;  // more than 65504 when it is multiplied by 3 / 2
  ddprun::testing::RunRankThreads({.nodes = {3}}, [&gradients](Communicator& communicator) {
    uint16_t weight = 0;
    DistributedDataParallel ddp(communicator);
    ddp.AddParameter("w", &weight, 1, DType::kFloat16);
    if (!ddp.Finalize().ok()) return;
    auto* gradient = static_cast<uint16_t*>(ddp.GradientPtr(0));
    auto join = ddp.Join(false);
    if (!join.ok()) return;
    if (communicator.rank() > 0) {
      *gradient = communicator.rank() == 1 ? k40000 : 0;
      if (!ddp.GradientReady(0).ok() || !ddp.Finish().ok()) return;
      gradients[communicator.rank()] = *gradient;
    }
    join->Wait().IgnoreError();
  });
  CHECK(gradients[1] == 0x74e2);  // 20000
  CHECK(gradients[2] == 0x74e2);
}

TEST_CASE("join: a wait in the middle of a pass ends the group in words") {
  ThreadGroup group(2);
  absl::Status statuses[2];
  group.Run([&statuses](Communicator& communicator) {
    Replica replica(communicator);
    if (!replica.ddp.Finalize().ok()) return;
    auto join = replica.ddp.Join();
    if (!join.ok()) return;
    CHECK_FALSE(replica.ddp.GradientReady(99).ok());  // the pass is announced all the same
    statuses[communicator.rank()] = communicator.rank() == 0 ? join->Wait() : replica.Step();
  });
  CHECK(statuses[0].message().find("Wait for a Join in the middle") == 0);
  CHECK(statuses[1].message() == Contains("Wait for a Join in the middle"));
}

TEST_CASE("join: what it cannot do is refused") {
  ThreadGroup group(1);
  Replica replica(group.communicator(0));
  CHECK(replica.ddp.Join().status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(replica.ddp.Finalize().ok());
  {
    auto join = replica.ddp.Join();
    REQUIRE(join.ok());
    CHECK(replica.ddp.Join().status().code() == absl::StatusCode::kFailedPrecondition);
    auto moved = *std::move(join);
    CHECK(moved.Wait().ok());
  }
  Replica fixed(group.communicator(0), {.static_graph = true});
  REQUIRE(fixed.ddp.Finalize().ok());
  CHECK(fixed.ddp.Join().status().code() == absl::StatusCode::kUnimplemented);

  int32_t count = 0;
  DistributedDataParallel whole(group.communicator(0));
  whole.AddParameter("count", &count, 1, DType::kInt32);
  REQUIRE(whole.Finalize().ok());
  CHECK(whole.Join(false).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ddp
