// Loss scaling on top of CountNonFinite(), as distributed_data_parallel.h shows it, against
// torch.amp.GradScaler.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "ddp/zero_redundancy_optimizer.h"
#include "tests/support/files.h"
#include "tests/support/rank_threads.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

namespace ddp {
namespace {

constexpr size_t kCount = 40;
using Weights = std::array<float, kCount>;

// The gradients of torch_scaler.py.
float Gradient(int rank, int step, size_t i) {
  if (rank == 1 && step >= 2 && step < 6 && i == 7) return std::ldexp(1.0f, 126);
  return 0.25f * static_cast<float>(i) + static_cast<float>(step + rank * 2);
}

void Sgd(float* values, const float* gradient, size_t count, float unscale) {
  for (size_t i = 0; i < count; ++i) values[i] -= 0.5f * (gradient[i] * unscale);
}

// Scale and weights behind each of ten steps, as bytes.
absl::StatusOr<std::string> Train(Communicator& communicator, bool is_sharded) {
  Weights weights{};
  DistributedDataParallel ddp(communicator, {.shard_gradients = is_sharded});
  ddp.AddParameter("weights", weights.data(), kCount, DType::kFloat32);
  if (absl::Status status = ddp.Finalize(); !status.ok()) return status;
  float scale = 8;
  int good_steps = 0;
  std::string steps;
  for (int step = 0; step < 10; ++step) {
    absl::Status status = ddp.ZeroGrad();
    float* gradient = static_cast<float*>(ddp.GradientPtr(0));
    for (size_t i = 0; i < kCount; ++i) {
      gradient[i] = scale * Gradient(communicator.rank(), step, i);
    }
    status.Update(ddp.GradientReady(0));
    status.Update(ddp.Finish());
    if (!status.ok()) return status;
    const absl::StatusOr<size_t> nonfinite = ddp.CountNonFinite();
    if (!nonfinite.ok()) return nonfinite.status();
    if (*nonfinite > 0) {
      scale /= 2;
      good_steps = 0;
    } else {
      const float unscale = 1 / scale;
      if (is_sharded) {
        auto zero = ZeroRedundancyOptimizer::Create(ddp);
        if (!zero.ok()) return zero.status();
        status = zero->Step([&](const ParameterShard& shard) {
          Sgd(static_cast<float*>(shard.values), static_cast<const float*>(shard.gradient),
              shard.count, unscale);
          return absl::OkStatus();
        });
        if (!status.ok()) return status;
      } else {
        Sgd(weights.data(), gradient, kCount, unscale);
      }
      if (++good_steps == 2) {
        scale *= 2;
        good_steps = 0;
      }
    }
    steps.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
    steps.append(reinterpret_cast<const char*>(weights.data()), sizeof(weights));
  }
  return steps;
}

TEST_CASE("loss scaling: all ranks skip the steps that torch.amp.GradScaler skips") {
  const ddprun::testing::TorchPython& torch = ddprun::testing::FindTorchPython();
  if (torch.python.empty()) return ddprun::testing::SkipWithoutTorch();
  const ddprun::testing::TempDir folder;
  ddprun::testing::Subprocess python(
      {torch.python, ddprun::testing::Runfile("tests/worker_runtime/torch_scaler.py"),
       folder.path().string()});
  REQUIRE_MESSAGE(python.Wait(ddprun::testing::kTorchPatience) == 0, python.Describe());
  for (const bool is_sharded : {false, true}) {
    std::vector<absl::StatusOr<std::string>> ours(2);
    ddprun::testing::RunRankThreads({.nodes = {2}}, [&](Communicator& all) {
      ours[static_cast<size_t>(all.rank())] = Train(all, is_sharded);
    });
    for (const size_t rank : {0, 1}) {
      REQUIRE_MESSAGE(ours[rank].ok(), ours[rank].status().ToString());
      CHECK(ours[rank]->size() == 10 * (kCount + 1) * sizeof(float));
      CHECK(*ours[rank] == ddprun::testing::ReadFile(folder.File("steps." + std::to_string(rank))));
    }
  }
}

}  // namespace
}  // namespace ddp
