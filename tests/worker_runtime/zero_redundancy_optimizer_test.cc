// Sharded optimizer state against whole state, bit for bit, and against PyTorch's.
#include "ddp/zero_redundancy_optimizer.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/rank_threads.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/zero_replica.h"
#include "worker_runtime/comm/form_group.h"

namespace ddp {
namespace {

using ddprun::testing::RunRankThreads;
using testing::Gradient;
using testing::kMixed;
using testing::Load;
using testing::Options;
using testing::RandomGradient;
using testing::Replica;
using testing::Size;

struct Layout {
  std::vector<int> nodes;
  bool use_tcp = false;
};

// On threads of this process, over memory and sockets; the group of one without either.
void OnRanks(const Layout& layout, const std::function<void(Communicator&)>& body) {
  if (layout.nodes != std::vector<int>{1}) {
    return RunRankThreads({.nodes = layout.nodes, .use_tcp = layout.use_tcp}, body);
  }
  const auto alone = internal::FormLocalGroup({.timeout = std::chrono::seconds(30)});
  REQUIRE(alone.ok());
  body(*alone->communicator);
}

TEST_CASE("zero: parameters and state are those of whole state bit for bit, on every backend") {
  for (const Layout& layout : {Layout{{1}}, Layout{{3}}, Layout{{2, 2}}, Layout{{3}, true}}) {
    for (const auto compression : {GradientCompression::kNone, GradientCompression::kBFloat16}) {
      OnRanks(layout, [&](Communicator& all) {
        Replica whole(all, kMixed, Options(false, compression));
        Replica sharded(all, kMixed, Options(true, compression));
        absl::Status status = whole.Start();
        status.Update(sharded.Start());
        status.Update(whole.Train(0, 4));
        status.Update(sharded.Train(0, 4));
        const std::vector<float> state = sharded.state;
        status.Update(sharded.zero->GatherState(state.data(), DType::kFloat32,
                                                sharded.StateTensors(), all.world_size() - 1));
        CHECK_MESSAGE(status.ok(), status.message());
        CHECK(sharded.values == whole.values);
        CHECK((sharded.full == whole.full) == (all.rank() == all.world_size() - 1));
        CHECK(sharded.zero->TakeState(whole.StateTensors(), sharded.state.data()).ok());
        CHECK(sharded.state == state);
      });
    }
  }
}

TEST_CASE("zero: parameters without a gradient are those of whole state, too") {
  for (const bool is_static : {false, true}) {
    OnRanks({.nodes = {3}}, [is_static](Communicator& all) {
      std::vector<std::vector<std::vector<char>>> ends;
      for (const bool is_sharded : {false, true}) {
        DistributedDataParallelOptions options = Options(is_sharded);
        options.find_unused_parameters = !is_static;
        options.static_graph = is_static;
        Replica replica(all, kMixed, options);
        // One that nobody uses, one that rank 1 does not use, and one that is used now and then.
        replica.is_used = [is_static](int rank, int step, size_t id) {
          return id != 3 && (id != 0 || rank != 1) && (id != 6 || is_static || step % 2 == 0);
        };
        absl::Status status = replica.Start();
        status.Update(replica.Train(0, 4));
        CHECK_MESSAGE(status.ok(), status.message());
        ends.push_back(replica.values);
      }
      CHECK(ends[0] == ends[1]);
    });
  }
}

TEST_CASE("zero: each rank has 1/N of the elements, and each element has one rank") {
  const std::vector<Size> sizes = {{100000}, {3, DType::kFloat64}, {500000}, {1}};
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<std::vector<int>> owners;
    for (const Size& size : sizes) owners.emplace_back(size.count, 0);
    std::vector<size_t> counts(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {  // one after the other, as they fill one array
      OnRanks({.nodes = {ranks}}, [&](Communicator& communicator) {
        Replica replica(communicator, sizes, {.shard_gradients = true});
        CHECK(replica.Start().ok());
        if (communicator.rank() != rank) return;
        counts[static_cast<size_t>(rank)] = replica.zero->state_count();
        size_t offset = 0;
        for (const ParameterShard& shard : replica.zero->shards()) {
          CHECK(shard.offset == offset);
          offset += shard.count;
          for (size_t i = 0; i < shard.count; ++i) {
            ++owners[static_cast<size_t>(shard.parameter)][shard.begin + i];
          }
        }
        CHECK(offset == replica.zero->state_count());
      });
    }
    for (size_t id = 0; id < sizes.size(); ++id) {
      CHECK(owners[id] == std::vector<int>(sizes[id].count, 1));
    }
    // Two buckets of float32 and one of float64, each padded by up to a cache line for each rank
    // and tensor.
    for (const size_t count : counts) {
      CHECK(count <= 600004 / static_cast<size_t>(ranks) + 3 * 16 + 4 * 16);
    }
  }
}

TEST_CASE("zero: a checkpoint goes on with another number of ranks as whole state does") {
  std::vector<std::vector<std::vector<char>>> ends;
  for (const bool is_sharded : {false, true}) {
    const ddprun::testing::TempDir dir;
    const CheckpointOptions where{.directory = dir.path().string()};
    const std::vector<Size> sizes = {{1000}, {0}, {77, DType::kFloat64}, {2500}};
    OnRanks({.nodes = {2}}, [&](Communicator& all) {
      Replica replica(all, sizes, Options(is_sharded));
      absl::Status status = replica.Start();
      status.Update(replica.Train(0, 3));
      if (is_sharded) {
        status.Update(replica.zero->GatherState(replica.state.data(), DType::kFloat32,
                                                replica.StateTensors()));
      }
      Checkpoint checkpoint(all, where);
      status.Update(checkpoint.Save({.step = 3}, replica.Tensors()));
      CHECK_MESSAGE(status.ok(), status.message());
    });
    OnRanks({.nodes = {3}}, [&](Communicator& all) {
      Replica replica(all, sizes, Options(is_sharded));
      absl::Status status = replica.Start();
      Checkpoint checkpoint(all, where);
      const auto loaded = checkpoint.LoadLatest(replica.Tensors());
      CHECK((loaded.ok() && loaded->has_value() && (*loaded)->step == 3));
      if (is_sharded) {
        status.Update(replica.zero->TakeState(replica.StateTensors(), replica.state.data()));
      }
      status.Update(replica.Train(3, 6));
      CHECK_MESSAGE(status.ok(), status.message());
      if (all.rank() == 1) ends.push_back(replica.values);
    });
  }
  REQUIRE(ends.size() == 2);
  CHECK(ends[0] == ends[1]);
}

TEST_CASE("zero: weights are those of torch's ZeroRedundancyOptimizer") {
  const ddprun::testing::TorchPython& torch = ddprun::testing::FindTorchPython();
  if (torch.python.empty()) return ddprun::testing::SkipWithoutTorch();
  const ddprun::testing::TempDir folder;
  ddprun::testing::Subprocess python(
      {torch.python, ddprun::testing::Runfile("tests/worker_runtime/torch_zero.py"),
       folder.path().string()});
  REQUIRE_MESSAGE(python.Wait(ddprun::testing::kTorchPatience) == 0, python.Describe());
  std::vector<std::string> ours(2);
  OnRanks({.nodes = {2}}, [&](Communicator& all) {
    Replica replica(all, {{3}, {50}, {2}, {17}}, Options(true));
    absl::Status status = replica.Start();
    // Train() makes two passes a step, torch_zero.py one.
    const Gradient gradient = [](int rank, int step, size_t id, size_t i) {
      if (step >= 100) return 0.0;
      return 0.25 * static_cast<double>(i) + step * 0.5 + rank * 2 + static_cast<double>(id);
    };
    for (int step = 0; step < 5; ++step) {
      status.Update(replica.Train(step, step + 1, gradient, {.learning = 0.5, .momentum = 0.5}));
      for (const std::vector<char>& values : replica.values) {
        ours[static_cast<size_t>(all.rank())].append(values.data(), values.size());
      }
    }
    CHECK_MESSAGE(status.ok(), status.message());
  });
  for (const size_t rank : {0, 1}) {
    const std::string name = "weights." + std::to_string(rank);
    CHECK(ours[rank].size() == 5 * 72 * sizeof(float));
    CHECK(ours[rank] == ddprun::testing::ReadFile(folder.File(name)));
  }
}

TEST_CASE("zero: norms, clipping and counts are of all ranks' shards") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double order : {2.0, 1.0, kInfinity}) {
    OnRanks({.nodes = {3}}, [order](Communicator& all) {
      std::vector<double> norms;
      std::vector<std::vector<std::vector<char>>> ends;
      for (const bool is_sharded : {false, true}) {
        Replica replica(all, {{1000}, {77, DType::kFloat64}}, Options(is_sharded));
        absl::Status status = replica.Start();
        status.Update(replica.Backward(0, RandomGradient));
        status.Update(replica.ddp.Finish());
        CHECK(*replica.ddp.CountNonFinite() == 0);
        const absl::StatusOr<double> norm = replica.ddp.ClipGradNorm(1, order);
        status.Update(norm.status());
        norms.push_back(norm.value_or(-1));
        status.Update(replica.Update());
        CHECK_MESSAGE(status.ok(), status.message());
        ends.push_back(replica.values);
        // A NaN in another rank's shard, and two numbers that are infinite.
        status = replica.ddp.ZeroGrad();
        if (all.rank() == 1) {
          static_cast<float*>(replica.ddp.GradientPtr(0))[0] = std::nanf("");
          static_cast<double*>(replica.ddp.GradientPtr(1))[76] = kInfinity;
        }
        status.Update(replica.Backward(1, RandomGradient));
        status.Update(replica.ddp.Finish());
        CHECK_MESSAGE(status.ok(), status.message());
        CHECK(*replica.ddp.CountNonFinite() == 2);
        CHECK(std::isnan(*replica.ddp.ClipGradNorm(1, order)));
      }
      // The sums are made in double, in another order.
      CHECK(norms[0] == doctest::Approx(norms[1]).epsilon(1e-14));
      for (size_t i = 0; i < 1000; ++i) {
        CHECK(Load(DType::kFloat32, ends[0][0].data(), i) ==
              doctest::Approx(Load(DType::kFloat32, ends[1][0].data(), i)).epsilon(1e-6));
      }
    });
  }
}

}  // namespace
}  // namespace ddp
