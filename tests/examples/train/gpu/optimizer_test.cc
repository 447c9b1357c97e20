#include "examples/train/optimizer.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "examples/train/cpu_network.h"
#include "examples/train/gpu/cuda_network.h"
#include "tests/examples/train/gpu/emulated_cublas.h"
#include "tests/examples/train/gpu/emulated_layers.h"
#include "tests/support/contains.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/rank_threads.h"

namespace train {
namespace {

using ddprun::testing::EmulatedCuda;
using ddprun::testing::RunRankThreads;
using std::chrono::milliseconds;

constexpr int kInputs = 20, kHidden = 7, kRanks = 3, kSteps = 4;
using Values = std::vector<std::vector<float>>;  // by parameter

// The emulated driver serves one thread at a time.
class OneAtATime : public Network {
 public:
  explicit OneAtATime(std::unique_ptr<Network> network) : network_(std::move(network)) {}

  std::vector<Parameter>& parameters() override { return network_->parameters(); }
  absl::Status Forward(const ImageSet& images, std::span<const int64_t> indices) override {
    return network_->Forward(images, indices);
  }
  absl::Status Backward(float scale, const std::function<void(int)>& ready) override {
    return network_->Backward(scale, ready);
  }
  absl::Status Update(const Weights& weights, float learning_rate) override {
    const std::lock_guard lock(mutex_);
    return network_->Update(weights, learning_rate);
  }
  absl::StatusOr<float*> MakeZeros(const char* what, size_t count) override {
    const std::lock_guard lock(mutex_);
    return network_->MakeZeros(what, count);
  }
  absl::StatusOr<Tally> TakeTally() override { return network_->TakeTally(); }
  ddp::Stream stream() const override { return network_->stream(); }
  absl::Status CopyOut(const float* device, float* host, size_t count) override {
    const std::lock_guard lock(mutex_);
    return network_->CopyOut(device, host, count);
  }
  absl::Status CopyIn(const float* host, float* device, size_t count) override {
    const std::lock_guard lock(mutex_);
    return network_->CopyIn(host, device, count);
  }

 private:
  static inline std::mutex mutex_;
  const std::unique_ptr<Network> network_;
};

// A rank's network, whose gradients are made up.
struct Rank {
  Rank(ddp::Communicator& communicator, Network& network, bool is_sharded)
      : rank(communicator.rank()),
        network(network),
        ddp(communicator, {.bucket_cap_bytes = 200,
                           .first_bucket_bytes = 100,
                           .shard_gradients = is_sharded,
                           .stream = network.stream()}) {
    for (const Parameter& p : network.parameters()) {
      ddp.AddParameter(p.name, p.values, p.count, ddp::DType::kFloat32);
    }
    REQUIRE(ddp.Finalize().ok());
    int id = 0;
    for (Parameter& p : network.parameters()) {
      p.gradient = static_cast<float*>(ddp.GradientPtr(id++));
    }
    absl::StatusOr<Optimizer> made = Optimizer::Create(network, is_sharded ? &ddp : nullptr);
    REQUIRE_MESSAGE(made.ok(), std::string(made.status().message()));
    optimizer.emplace(*std::move(made));
    CHECK(optimizer->is_sharded() == is_sharded);
  }

  absl::Status Step(int step) {
    absl::Status status = ddp.ZeroGrad();
    for (int id = static_cast<int>(network.parameters().size()) - 1; id >= 0; --id) {
      const Parameter& p = network.parameters()[id];
      for (size_t i = 0; i < p.count; ++i) {
        p.gradient[i] = static_cast<float>((i * 7 + step * 3 + rank * 5 + id) % 11) - 5;
      }
      status.Update(ddp.GradientReady(id));
    }
    status.Update(ddp.Finish());
    return status.ok() ? optimizer->Step(0.05f) : status;
  }

  // Memory of each parameter's size, and tensors of it.
  std::vector<ddp::Tensor> Tensors(Values& values) {
    std::vector<ddp::Tensor> tensors;
    values.clear();
    for (const Parameter& p : network.parameters()) {
      values.emplace_back(p.count);
      tensors.push_back({p.name, values.back().data(), p.count});
    }
    return tensors;
  }

  const int rank;
  Network& network;
  ddp::DistributedDataParallel ddp;
  std::optional<Optimizer> optimizer;
};

// Whether the optimizer's velocities were sharded before and behind a checkpoint.
struct Way {
  bool was_sharded, is_sharded;
};

// The velocities and weights of rank 0 after some steps, a checkpoint in the midst of them.
std::vector<Values> Train(const std::function<std::unique_ptr<Network>()>& make, Way way) {
  std::vector<std::unique_ptr<Network>> networks;
  for (int rank = 0; rank < kRanks; ++rank) {
    networks.push_back(std::make_unique<OneAtATime>(make()));
  }
  Values saved, velocities, weights;
  size_t kept[kRanks] = {};
  const auto run = [&](bool is_sharded, const auto& body) {
    RunRankThreads({.nodes = {kRanks}}, [&](ddp::Communicator& communicator) {
      Rank rank(communicator, *networks[communicator.rank()], is_sharded);
      body(rank);
    });
  };
  const auto copy_out = [](Rank& rank, Values& to) {
    const bool is_root = rank.rank == 0;
    CHECK(rank.optimizer->CopyOut(is_root ? rank.Tensors(to) : std::vector<ddp::Tensor>()).ok());
  };
  run(way.was_sharded, [&](Rank& rank) {
    for (int step = 0; step < kSteps; ++step) REQUIRE(rank.Step(step).ok());
    copy_out(rank, saved);
  });
  run(way.is_sharded, [&](Rank& rank) {
    Values mine;
    const std::vector<ddp::Tensor> tensors = rank.Tensors(mine);
    mine = saved;
    for (size_t i = 0; i < mine.size(); ++i) {
      std::copy(saved[i].begin(), saved[i].end(), static_cast<float*>(tensors[i].data));
    }
    CHECK(rank.optimizer->CopyIn(tensors).ok());
    for (int step = kSteps; step < 2 * kSteps; ++step) REQUIRE(rank.Step(step).ok());
    copy_out(rank, velocities);
    kept[rank.rank] = rank.optimizer->count();
  });
  constexpr size_t kAll = kInputs * kHidden + kHidden + kHidden * kClasses + kClasses;
  CHECK(kept[0] + kept[1] + kept[2] == (way.is_sharded ? kAll : kRanks * kAll));
  for (const Parameter& p : networks[0]->parameters()) {
    weights.emplace_back(p.values, p.values + p.count);
  }
  return {velocities, weights};
}

TEST_CASE(
    "optimizer: sharded or whole, before a checkpoint and behind it, it gives the same bits") {
  EmulatedCuda cuda{ddprun::testing::EmulatedLayers()};
  const CublasApi cublas = ddprun::testing::EmulatedCublas();
  const auto on_cpu = []() -> std::unique_ptr<Network> {
    return std::make_unique<CpuNetwork>(kInputs, kHidden, 3);
  };
  // What is memory of the device here a communicator for host memory reduces.
  const auto on_gpu = [&]() -> std::unique_ptr<Network> {
    auto made = CudaNetwork::Create(ddp::Gpu(cuda.api()), cublas, kInputs, kHidden, 3);
    REQUIRE(made.ok());
    return *std::move(made);
  };
  const std::vector<Values> expected = Train(on_cpu, {false, false});
  for (const Way way : {Way{false, false}, {false, true}, {true, false}, {true, true}}) {
    CAPTURE(way.was_sharded);
    CAPTURE(way.is_sharded);
    CHECK(Train(on_cpu, way) == expected);
    CHECK(Train(on_gpu, way) == expected);
  }
}

TEST_CASE("optimizer: an update that fails is an error that names the parameter") {
  EmulatedCuda cuda{ddprun::testing::EmulatedLayers()};
  const CublasApi cublas = ddprun::testing::EmulatedCublas();
  std::vector<std::unique_ptr<Network>> networks;
  for (int rank = 0; rank < 2; ++rank) {
    auto made = CudaNetwork::Create(ddp::Gpu(cuda.api()), cublas, kInputs, kHidden, 3);
    REQUIRE(made.ok());
    networks.push_back(std::make_unique<OneAtATime>(*std::move(made)));
  }
  cuda.Fail("momentum_update", ddp::internal::kCudaErrorUnknown);
  for (const bool is_sharded : {false, true}) {
    RunRankThreads({.nodes = {2}}, [&](ddp::Communicator& communicator) {
      Rank rank(communicator, *networks[communicator.rank()], is_sharded);
      const std::string text(rank.Step(0).message());
      // Buckets go backward. A rank may hear of the other's error first.
      const std::string first = is_sharded ? "output." : "hidden.weight: ";
      CHECK(text == Contains(first));
      CHECK(text == Contains("cuLaunchKernel of momentum_update"));
    });
  }
}

TEST_CASE("optimizer: waiting for others' weights counts as communication that is not hidden") {
  for (const bool is_sharded : {false, true}) {
    RunRankThreads({.nodes = {2}}, [&](ddp::Communicator& communicator) {
      CpuNetwork network(kInputs, kHidden, 3);
      Rank rank(communicator, network, is_sharded);
      REQUIRE(rank.Step(0).ok());
      const ddp::ReductionTimes::TimePoint start{std::chrono::hours(1)};
      // One reduction ended before backward did, one behind it.
      // no limit: figures
      for (const milliseconds exposed : {milliseconds(-20), milliseconds(10)}) {
        ddp::ReductionTimes times{.backward_end = start,
                                  .communication_end = start + exposed,
                                  .communication = milliseconds(30)};
        rank.optimizer->AddWait(times);
        const auto added = times.communication - milliseconds(30);
        CHECK((added > milliseconds(0)) == is_sharded);
        CHECK(times.Exposed() == std::max(exposed, milliseconds(0)) + added);
      }
    });
  }
}

}  // namespace
}  // namespace train
