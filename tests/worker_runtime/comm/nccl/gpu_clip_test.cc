// ClipGradNorm, CountNonFinite and ZeroGrad of gradients on GPUs, on the double of CUDA and NCCL.
#include <signal.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "ddp/distributed_data_parallel.h"
#include "ddp/step_graph.h"
#include "rendezvous/base/check.h"
#include "tests/support/expect.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::internal::CudaPointer;
using ddp::internal::CudaStream;
using ddp::internal::kCudaSuccess;
using Floats = std::vector<float>;

constexpr size_t kCount = 8;  // elements of each of two parameters
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Model {
  explicit Model(ddp::Communicator& communicator, ddp::DistributedDataParallelOptions options = {},
                 bool owns_gradients = false)
      : stream(NewStream()), ddp(communicator, [&] {
          options.stream = stream;
          return options;
        }()) {
    for (int i = 0; i < 2; ++i) {
      weights.emplace_back(Floats(kCount, 1));
      gradients.emplace_back(Floats(kCount, 9));
      float* const data = weights.back().data();
      const ddp::Piece own{gradients.back().data(), kCount};
      const std::string name = "layer" + std::to_string(i);
      owns_gradients ? ddp.AddParameter(name, data, kCount, DType::kFloat32, own)
                     : ddp.AddParameter(name, data, kCount, DType::kFloat32);
    }
    DDP_CHECK(ddp.Finalize().ok());
  }
  // A pass in which the averages over two ranks are 3 and -4.
  absl::Status Pass(int rank, float last = 0, std::optional<ddp::Stream> finish = std::nullopt) {
    for (const int id : {1, 0}) {
      host.emplace_back(kCount, (id == 0 ? 3.0f : -4.0f) + (rank == 0 ? 1.0f : -1.0f));
      if (id == 1 && last != 0) host.back().back() = last;
      DDP_CHECK(Driver().cuMemcpyHtoDAsync(Gradient(id), host.back().data(), kCount * sizeof(float),
                                           static_cast<CudaStream>(stream)) == kCudaSuccess);
      if (absl::Status status = ddp.GradientReady(id); !status.ok()) return status;
    }
    return ddp.Finish(finish);
  }
  Floats Read(int id) const {
    Floats values(kCount);
    CudaStream on = static_cast<CudaStream>(stream);
    DDP_CHECK(Driver().cuMemcpyDtoHAsync(values.data(), Gradient(id), kCount * sizeof(float), on) ==
              kCudaSuccess);
    DDP_CHECK(Driver().cuStreamSynchronize(on) == kCudaSuccess);
    return values;
  }
  CudaPointer Gradient(int id) const { return reinterpret_cast<CudaPointer>(ddp.GradientPtr(id)); }

  const ddp::Stream stream;
  std::vector<DeviceArray> weights, gradients;
  std::vector<Floats> host;  // until the copies are done
  ddp::DistributedDataParallel ddp;
};

Floats Scaled(float value, double factor) {
  return Floats(kCount, value * static_cast<float>(factor));
}

TEST_CASE("gpu clip: norms of every order, and the gradients scaled behind the pass") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          Model model(communicator);
          const double infinity = std::numeric_limits<double>::infinity();
          const struct {
            double order, norm;
          } kNorms[] = {{2, std::sqrt(200.0)}, {1, 56}, {infinity, 4}, {3, std::cbrt(728.0)}};
          for (const auto& expected : kNorms) {
            EXPECT(model.Pass(communicator.rank()).ok());
            const absl::StatusOr<double> norm = model.ddp.ClipGradNorm(2, expected.order);
            EXPECT(norm.ok());
            EXPECT(std::fabs(*norm - expected.norm) < 1e-12 * expected.norm);
            const double factor = 2 / (*norm + 1e-6);
            EXPECT(model.Read(0) == Scaled(3, factor));
            EXPECT(model.Read(1) == Scaled(-4, factor));
          }
          EXPECT(model.Pass(communicator.rank()).ok());
          EXPECT(model.ddp.ClipGradNorm(100).ok());
          EXPECT(model.Read(1) == Floats(kCount, -4));
          EXPECT(*model.ddp.CountNonFinite() == 0);
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu clip: one rank's infinity is every rank's, and nothing is scaled if that is asked") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          Model model(communicator);
          const bool is_bad = communicator.rank() == 1;
          EXPECT(model.Pass(communicator.rank(), is_bad ? kInfinity : 0).ok());
          EXPECT(*model.ddp.CountNonFinite() == 1);
          EXPECT(absl::IsFailedPrecondition(model.ddp.ClipGradNorm(1, 2, true).status()));
          EXPECT(model.Read(0) == Floats(kCount, 3));
          EXPECT(*model.ddp.ClipGradNorm(1) == kInfinity);
          EXPECT(model.Read(0) == Floats(kCount, 0));
          EXPECT(std::isnan(model.Read(1).back()));
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu clip: of sharded gradients all ranks get the whole norm, and scale their shard") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          Model model(communicator, {.shard_gradients = true});
          EXPECT(model.Pass(communicator.rank()).ok());
          EXPECT(*model.ddp.CountNonFinite() == 0);
          const absl::StatusOr<double> norm = model.ddp.ClipGradNorm(2);
          EXPECT(norm.ok());
          EXPECT(std::fabs(*norm - std::sqrt(200.0)) < 1e-12);
          // The bucket is layer 1 and layer 0, of which each rank has the averages of one half.
          const int mine = communicator.rank() == 0 ? 1 : 0;
          EXPECT(model.Read(mine) == Scaled(mine == 0 ? 3 : -4, 2 / (*norm + 1e-6)));
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu clip: the host waits for the pass, until the group's timeout at most") {
  CHECK(RunOnDouble(1, DoubleEnv(), [](int) {
          const auto group = GpuGroup();
          Model model(group->communicator());
          EXPECT(model.Pass(0).ok());
          EXPECT(model.ddp.ClipGradNorm(100).ok());
          const int hold = HoldStream(model.stream);
          // lower bound: the stream is held
          group->communicator().SetTimeout(std::chrono::milliseconds(300));
          const absl::Status late = model.ddp.ClipGradNorm(1).status();
          group->communicator().SetTimeout(std::chrono::seconds(60));
          EXPECT(absl::IsDeadlineExceeded(late));
          EXPECT(late.message().find("within 300 ms") != std::string::npos);
          ReleaseStream(hold);
          EXPECT(model.ddp.ClipGradNorm(100).ok());
          EXPECT(group->Shutdown().ok());
          return 0;
        }) == "0");
}

// Behind a write that is held back until another thread lets it go.
TEST_CASE("gpu clip: it is behind the last Finish(), or the stream that is named") {
  CHECK(
      OnRanks(2, [](ddp::Communicator& communicator) {
        Model model(communicator);
        const ddp::Stream optimizer = NewStream();
        for (const bool is_named : {false, true}) {
          EXPECT(model.Pass(communicator.rank(), 0, is_named ? model.stream : optimizer).ok());
          model.Read(0);  // a pass that is not finished on the optimizer's stream is over
          const int hold = HoldStream(optimizer);
          const Floats nines(kCount, 9);
          EXPECT(Driver().cuMemcpyHtoDAsync(model.Gradient(0), nines.data(), kCount * sizeof(float),
                                            static_cast<CudaStream>(optimizer)) == kCudaSuccess);
          std::thread release([hold] { ReleaseStream(hold); });
          const absl::StatusOr<double> norm = is_named
                                                  ? model.ddp.ClipGradNorm(1e9, 1, false, optimizer)
                                                  : model.ddp.ClipGradNorm(1e9, 1);
          release.join();
          EXPECT(norm.ok());
          EXPECT(*norm == 8 * 9 + 8 * 4);
        }
        // What it was finished on does not choose the next pass's stream.
        EXPECT(model.Pass(communicator.rank(), 0, optimizer).ok());
        EXPECT(Driver().cuStreamSynchronize(static_cast<CudaStream>(optimizer)) == kCudaSuccess);
        const int hold = HoldStream(model.stream);
        EXPECT(model.Pass(communicator.rank()).ok());
        ReleaseStream(hold);
        EXPECT(model.Read(0) == Floats(kCount, 3));
        return 0;
      }) == "0 0");
}

TEST_CASE("gpu clip: when a rank dies in the pass the others get no number") {
  RankProcesses ranks({.world_size = 2, .env = DoubleEnv()}, [](int rank) {
    const auto group = GpuGroup();
    Model model(group->communicator());
    EXPECT(model.Pass(rank).ok());
    EXPECT(model.ddp.ClipGradNorm(1).ok());
    if (rank == 1) raise(SIGKILL);
    EXPECT(model.Pass(rank).ok());
    const absl::StatusOr<double> norm = model.ddp.ClipGradNorm(1);
    EXPECT(!norm.ok());
    EXPECT(norm.status().message().find("rank 1") != std::string::npos);
    EXPECT(!model.ddp.CountNonFinite().ok());
    return 0;
  });
  CHECK(ranks.Await(0) == 0);
}

// The sums are still used when the group ends.
TEST_CASE("gpu clip: a device that does not end its work does not hang the end of a program") {
  CHECK(RunOnDouble(1, DoubleEnv(), [](int) {
          const auto group = GpuGroup();
          Model model(group->communicator());
          EXPECT(model.Pass(0).ok());
          EXPECT(model.ddp.ClipGradNorm(1).ok());
          HoldStream(model.stream);
          EXPECT(model.ddp.ZeroGrad().ok());
          return 0;
        }) == "0");
}

TEST_CASE("gpu clip: gradients in memory of the program's own are set to 0 in the stream's order") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          Model model(communicator, {}, /*owns_gradients=*/true);
          EXPECT(model.Pass(communicator.rank()).ok());
          EXPECT(model.Read(0) == Floats(kCount, 3));
          const int hold = HoldStream(model.stream);
          const Floats nines(kCount, 9);
          EXPECT(Driver().cuMemcpyHtoDAsync(model.Gradient(0), nines.data(), kCount * sizeof(float),
                                            static_cast<CudaStream>(model.stream)) == kCudaSuccess);
          EXPECT(model.ddp.ZeroGrad().ok());
          ReleaseStream(hold);
          EXPECT(model.Read(0) == Floats(kCount, 0));
          EXPECT(model.Read(1) == Floats(kCount, 0));
          EXPECT(model.Pass(communicator.rank()).ok());
          EXPECT(std::fabs(*model.ddp.ClipGradNorm(1) - std::sqrt(200.0)) < 1e-12);
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu clip: a step that would be captured is told that the host cannot wait there") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          Model model(communicator);
          const auto graph = ddp::StepGraph::Create(communicator, model.stream);
          EXPECT(graph.ok());
          const auto step = [&] {
            absl::Status status = model.Pass(communicator.rank());
            return status.ok() ? model.ddp.ClipGradNorm(1).status() : status;
          };
          for (int i = 0; i < ddp::StepGraph::kUncapturedSteps; ++i) {
            EXPECT((*graph)->Run(step).ok());
          }
          const absl::Status refused = (*graph)->Capture(step);
          EXPECT(absl::IsFailedPrecondition(refused));
          EXPECT(refused.message().find("outside of the StepGraph") != std::string::npos);
          EXPECT((*graph)->Run(step).ok());
          return 0;
        }) == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
