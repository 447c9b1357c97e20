// Sharded optimizer state: what is said to wrong calls, and to ranks that do not do alike.
#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/rank_threads.h"
#include "tests/worker_runtime/zero_replica.h"

namespace ddp {
namespace {

using ddprun::testing::RunRankThreads;
using testing::kMixed;
using testing::Options;
using testing::RandomGradient;
using testing::Replica;

TEST_CASE("zero: buckets that lie in several pieces cannot be divided") {
  RunRankThreads({.nodes = {2}}, [](Communicator& all) {
    std::vector<float> values(4), gradient(4);
    DistributedDataParallel rebuilt(all, {.rebuild_buckets = true, .shard_gradients = true});
    rebuilt.AddParameter("p", values.data(), values.size(), DType::kFloat32);
    CHECK(rebuilt.Finalize().message().find("shard_gradients with rebuild_buckets") == 0);
    DistributedDataParallel adopted(all, {.shard_gradients = true});
    adopted.AddParameter("p", values.data(), values.size(), DType::kFloat32,
                         {gradient.data(), gradient.size()});
    CHECK(adopted.Finalize().message() == Contains("in memory of the program's own"));
  });
}

TEST_CASE("zero: tied weights would be updated by two ranks") {
  RunRankThreads({.nodes = {2}}, [](Communicator& all) {
    std::vector<float> values(4);
    DistributedDataParallel tied(all, {.shard_gradients = true});
    tied.AddParameter("a", values.data(), values.size(), DType::kFloat32);
    tied.AddParameter("b", values.data() + 3, 1, DType::kFloat32);
    CHECK(tied.Finalize().message() ==
          "shard_gradients: parameters 'a' and 'b' share memory, and would be updated by different "
          "ranks; register tied weights once");
  });
}

TEST_CASE("zero: behind a refused gradient all ranks step") {
  RunRankThreads({.nodes = {2}}, [](Communicator& all) {
    Replica replica(all, {{40}}, Options(true));
    REQUIRE(replica.Start().ok());
    REQUIRE(replica.ddp.ZeroGrad().ok());
    CHECK(replica.ddp.GradientReady(0).ok());
    if (all.rank() == 1) CHECK_FALSE(replica.ddp.GradientReady(0).ok());  // twice
    CHECK(replica.ddp.Finish().ok() == (all.rank() == 0));
    const absl::Status stepped =
        replica.zero->Step([](const ParameterShard&) { return absl::OkStatus(); });
    CHECK_MESSAGE(stepped.ok(), stepped.message());
  });
}

TEST_CASE("zero: an update that throws ends the group with its words") {
  RunRankThreads({.nodes = {2}}, [](Communicator& all) {
    Replica replica(all, {{40}}, Options(true));
    REQUIRE(replica.Start().ok());
    REQUIRE(replica.ddp.ZeroGrad().ok());
    CHECK(replica.ddp.GradientReady(0).ok());
    CHECK(replica.ddp.Finish().ok());
    const absl::Status status = replica.zero->Step([&all](const ParameterShard&) -> absl::Status {
      if (all.rank() == 1) throw std::runtime_error("no memory");
      return absl::OkStatus();
    });
    const std::string said = "the update of 'p0' threw \"no memory\"";
    CHECK(status.message() == Contains(said));
  });
}

TEST_CASE("zero: calls out of order are told in sentences and change nothing") {
  RunRankThreads({.nodes = {2}}, [](Communicator& all) {
    DistributedDataParallel plain(all);
    CHECK(ZeroRedundancyOptimizer::Create(plain).status().message() ==
          "ZeroRedundancyOptimizer of a DistributedDataParallel without parameters yet: call its "
          "Finalize() first");
    CHECK(plain.Finalize().ok());
    CHECK(ZeroRedundancyOptimizer::Create(plain).status().message() ==
          "ZeroRedundancyOptimizer of a DistributedDataParallel that averages whole gradients: "
          "set its option shard_gradients");
    Replica replica(all, {{40}, {5}}, Options(true));
    CHECK(replica.Start().ok());
    CHECK(replica.Update().message() ==
          "Step() without averages of the gradients: it comes behind a Finish() outside of "
          "NoSync()");
    CHECK(replica.ddp.CountNonFinite().status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(replica.zero->Step(nullptr).code() == absl::StatusCode::kInvalidArgument);
    CHECK(replica.ddp.Join().status().code() == absl::StatusCode::kUnimplemented);
    CHECK(replica.ddp
              .RegisterCommHook(
                  [](const GradientBucket&, Communicator&) { return std::unique_ptr<Work>(); })
              .code() == absl::StatusCode::kFailedPrecondition);
    CHECK(replica.Train(0, 1).ok());
    CHECK(replica.Update().message() ==
          "Step() without averages of the gradients: a Step() has used them; ZeroGrad() and a "
          "backward pass come before the next one");
    CHECK(replica.ddp.GradientReady(1).message() ==
          "a backward pass onto gradients of which only this rank's shard is averaged: with "
          "shard_gradients call ZeroGrad() before it");
    CHECK(replica.ddp.Finish().code() == absl::StatusCode::kFailedPrecondition);
    // A rank whose tensors do not fit is told on all.
    std::vector<Tensor> tensors = replica.StateTensors();
    tensors[1].count = 4;
    CHECK(replica.zero->GatherState(replica.state.data(), DType::kFloat32, tensors).message() ==
          "state of parameter 'p1', 5 x float32, as the tensor 'p1.momentum', 4 x float32");
    CHECK(replica.zero->TakeState(tensors, replica.state.data()).code() ==
          absl::StatusCode::kInvalidArgument);
    tensors.pop_back();
    CHECK(replica.zero->GatherState(replica.state.data(), DType::kFloat32, tensors).message() ==
          "state of 2 parameters as 1 tensors: there must be one for each");
    const absl::Status missing = replica.zero->GatherState(
        all.rank() == 1 ? nullptr : replica.state.data(), DType::kFloat32, replica.StateTensors());
    CHECK(missing.message() == Contains("on rank 1 is a null pointer"));
    CHECK(replica.Train(1, 2).ok());
  });
}

TEST_CASE("zero: a rank without the option, or whose update fails, is named on all") {
  std::vector<std::string> messages(2);
  RunRankThreads({.nodes = {2}}, [&](Communicator& all) {
    Replica replica(all, {{40}}, Options(all.rank() == 0));
    messages[static_cast<size_t>(all.rank())] = std::string(replica.Start().message());
  });
  for (const std::string& message : messages) {
    CHECK(message ==
          "options are not the same on all ranks: shard_gradients is true on rank 0 and false on "
          "rank 1");
  }
  RunRankThreads({.nodes = {2}}, [&](Communicator& all) {
    Replica replica(all, kMixed, Options(true));
    absl::Status status = replica.Start();
    status.Update(replica.Backward(0, RandomGradient));
    status.Update(replica.ddp.Finish());
    CHECK_MESSAGE(status.ok(), status.message());
    int calls = 0;
    status = replica.zero->Step([&](const ParameterShard&) {
      return all.rank() == 1 && ++calls == 2 ? absl::InternalError("no room") : absl::OkStatus();
    });
    messages[static_cast<size_t>(all.rank())] = std::string(status.message());
  });
  CHECK(messages[1] == "no room");
  CHECK(messages[0] == Contains("rank 1: no room"));
}

}  // namespace
}  // namespace ddp
