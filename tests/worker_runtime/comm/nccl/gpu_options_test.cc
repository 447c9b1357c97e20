// What DistributedDataParallel does besides averaging, on GPUs: hooks, buffers, gradients in the
// program's memory, rebuilt buckets, and what is refused there. On the double of CUDA and NCCL.
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ddp/distributed_data_parallel.h"
#include "ddp/step_metrics.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/expect.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::internal::CudaPointer;
using ddp::internal::CudaStream;
using ddp::internal::kCudaSuccess;
using Floats = std::vector<float>;

constexpr size_t kCount = 100;
constexpr int kParameters = 4;

// Parameters of 400 bytes in buckets of two, the last two first.
struct Model {
  explicit Model(ddp::Communicator& communicator, ddp::DistributedDataParallelOptions options = {},
                 bool owns_gradients = false)
      : stream(NewStream()), ddp(communicator, [&] {
          options.bucket_cap_bytes = options.first_bucket_bytes = 2 * kCount * sizeof(float);
          options.stream = stream;
          return options;
        }()) {
    for (int i = 0; i < kParameters; ++i) {
      const std::string name = "layer" + std::to_string(i);
      weights.emplace_back(Floats(kCount, 1));
      gradients.emplace_back(Floats(kCount, 0));
      float* data = weights.back().data();
      const ddp::Piece own{gradients.back().data(), kCount};
      owns_gradients ? ddp.AddParameter(name, data, kCount, DType::kFloat32, own)
                     : ddp.AddParameter(name, data, kCount, DType::kFloat32);
    }
  }
  // Writes a gradient on the stream and announces it.
  absl::Status Backward(int id, float gradient) {
    host.emplace_back(kCount, gradient);
    DDP_CHECK(Driver().cuMemcpyHtoDAsync(Gradient(id), host.back().data(), kCount * sizeof(float),
                                         static_cast<CudaStream>(stream)) == kCudaSuccess);
    return ddp.GradientReady(id);
  }
  // A pass in which rank r's gradient of a parameter is its id + 2 * r.
  absl::Status Pass(int rank, const std::vector<int>& order) {
    for (const int id : order) {
      if (absl::Status status = Backward(id, static_cast<float>(id + 2 * rank)); !status.ok()) {
        return status;
      }
    }
    return ddp.Finish();
  }
  // Whether all elements of every gradient are its id + `more`, in the order of the stream.
  bool Holds(float more) const {
    for (int id = 0; id < kParameters; ++id) {
      Floats values(kCount);
      CudaStream on = static_cast<CudaStream>(stream);
      DDP_CHECK(Driver().cuMemcpyDtoHAsync(values.data(), Gradient(id), kCount * sizeof(float),
                                           on) == kCudaSuccess);
      DDP_CHECK(Driver().cuStreamSynchronize(on) == kCudaSuccess);
      if (values != Floats(kCount, static_cast<float>(id) + more)) return false;
    }
    return true;
  }
  CudaPointer Gradient(int id) const { return reinterpret_cast<CudaPointer>(ddp.GradientPtr(id)); }

  const ddp::Stream stream;
  std::vector<DeviceArray> weights, gradients;
  std::vector<Floats> host;  // until the copies are done
  ddp::DistributedDataParallel ddp;
};

TEST_CASE("gpu options: a hook gets the buckets in their order, on the stream of the gradients") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          Model model(communicator);
          EXPECT(model.ddp.Finalize().ok());
          std::vector<std::pair<int, bool>> seen;
          bool is_on_stream = true;
          const auto sum = [&](const ddp::GradientBucket& bucket, ddp::Communicator& all) {
            seen.emplace_back(bucket.index, bucket.is_last);
            is_on_stream &= bucket.stream == model.stream;
            return all.AllReduce(bucket.data, bucket.count, bucket.dtype, ddp::ReduceOp::kMax,
                                 bucket.stream);
          };
          EXPECT(model.ddp.RegisterCommHook(sum).ok());
          for (int pass = 0; pass < 2; ++pass) {
            EXPECT(model.Pass(communicator.rank(), {3, 2, 1, 0}).ok());
            EXPECT(model.Holds(2));
          }
          EXPECT(is_on_stream);
          EXPECT((seen ==
                  std::vector<std::pair<int, bool>>{{0, false}, {1, true}, {0, false}, {1, true}}));
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu options: buffers follow rank 0 at Finalize and at each broadcast") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          const float rank = static_cast<float>(communicator.rank());
          Model model(communicator);
          const DeviceArray buffer(Floats(kCount, 7 + rank));
          model.ddp.AddBuffer("mean", buffer.data(), kCount, DType::kFloat32);
          EXPECT(model.ddp.Finalize().ok());
          EXPECT(buffer.Read(model.stream) == Floats(kCount, 7));
          const Floats next(kCount, 20 + rank);
          const auto hold = HoldStream(model.stream);
          EXPECT(Driver().cuMemcpyHtoDAsync(reinterpret_cast<CudaPointer>(buffer.data()),
                                            next.data(), kCount * sizeof(float),
                                            static_cast<CudaStream>(model.stream)) == kCudaSuccess);
          EXPECT(model.ddp.BroadcastBuffers().ok());
          ReleaseStream(hold);
          EXPECT(buffer.Read(model.stream) == Floats(kCount, 20));
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu options: gradients in memory of the program's own are averaged there") {
  for (const bool rebuilds : {false, true}) {
    CHECK(OnRanks(2, [rebuilds](ddp::Communicator& communicator) {
            Model model(communicator, {.rebuild_buckets = rebuilds}, /*owns_gradients=*/true);
            EXPECT(model.ddp.Finalize().ok());
            EXPECT(model.ddp.GradientPtr(2) == model.gradients[2].data());
            for (int pass = 0; pass < 3; ++pass) {
              EXPECT(model.Pass(communicator.rank(), {0, 2, 1, 3}).ok());
              EXPECT(model.Holds(1));
            }
            return 0;
          }) == "0 0");
  }
}

// In the first bucket of two: the second would stand for it.
TEST_CASE("gpu options: a gradient that is not on the GPU fails all ranks at once") {
  CHECK(RunOnDouble(2, DoubleEnv(), [](int rank) {
          const auto group = GpuGroup(std::chrono::hours(1));
          const ddp::Stream stream = NewStream();
          const DeviceArray weights(Floats(kCount, 0)), gradient(Floats(kCount, 0));
          Floats on_host(kCount);
          ddp::DistributedDataParallel ddp(
              group->communicator(),
              {.bucket_cap_bytes = 4, .first_bucket_bytes = 4, .stream = stream});
          const DeviceArray other(Floats(kCount, 0));
          ddp.AddParameter("first", weights.data(), kCount, DType::kFloat32,
                           {gradient.data(), kCount});
          ddp.AddParameter("last", weights.data(), kCount, DType::kFloat32,
                           {rank == 1 ? on_host.data() : other.data(), kCount});
          EXPECT(ddp.Finalize().ok());
          absl::Status status = ddp.GradientReady(1);
          if (status.ok()) status = ddp.GradientReady(0);
          if (status.ok()) status = ddp.Finish();
          const TimePoint deadline = SteadyNow() + std::chrono::seconds(20);
          while (group->communicator().error().ok() && SteadyNow() < deadline) {
          }
          EXPECT(group->communicator().error().message().find("is not memory of a GPU") !=
                 std::string::npos);
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu options: rebuilt buckets are rank 0's order of arrival, and nothing moves") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          const int rank = communicator.rank();
          Model model(communicator, {.rebuild_buckets = true});
          EXPECT(model.ddp.Finalize().ok());
          const CudaPointer before = model.Gradient(0);
          const std::vector<int> order =
              rank == 0 ? std::vector{0, 3, 1, 2} : std::vector{1, 2, 3, 0};
          EXPECT(model.Pass(rank, order).ok());
          EXPECT(model.Holds(1));
          for (const int id : {3, 0}) {
            EXPECT(model.Backward(id, static_cast<float>(id + 2 * rank)).ok());
          }
          const TimePoint deadline = SteadyNow() + std::chrono::seconds(20);
          while (!model.ddp.IsReduced(0) && SteadyNow() < deadline) {
          }
          EXPECT(model.ddp.IsReduced(0));
          EXPECT(model.Pass(rank, {1, 2}).ok());
          EXPECT(model.Holds(1));
          EXPECT(model.Gradient(0) == before);
          return 0;
        }) == "0 0");
}

// The host is always more passes ahead of its device than times are kept of.
int StayFarAhead(int rank) {
  const auto group = GpuGroup();
  {
    Model model(group->communicator());
    EXPECT(model.ddp.Finalize().ok());
    ddp::StepMetrics metrics(group->communicator(), model.stream);
    const auto train = [&](int steps) {
      absl::Status status;
      for (int step = 0; step < steps; ++step) {
        metrics.BeginStep();
        status.Update(model.ddp.ZeroGrad());
        status.Update(model.Pass(rank, {3, 2, 1, 0}));
        metrics.EndStep(1, model.ddp.last_reduction());
      }
      return status.ok();
    };
    const auto is_known = [&model] {
      return model.ddp.last_reduction().communication_end.time_since_epoch().count() > 0;
    };
    const int first = HoldStream(model.stream);
    EXPECT(train(4));
    const int second = HoldStream(model.stream);
    EXPECT(train(80));
    EXPECT(!is_known());
    ReleaseStream(first);
    const TimePoint deadline = SteadyNow() + std::chrono::seconds(20);
    while ((!is_known() || metrics.steps() == 0) && SteadyNow() < deadline) metrics.Collect();
    EXPECT(is_known());
    EXPECT(!metrics.knows_communication());
    EXPECT(metrics.Summary().ends_with(", communication not measured"));
    ReleaseStream(second);
    EXPECT(train(1));
    EXPECT(model.Holds(1));
    metrics.Collect();
    EXPECT(metrics.steps() == 65);  // of 85: no more are awaited at once
    EXPECT(metrics.knows_communication());
    EXPECT(metrics.exposed_ms() > 0);
  }
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("gpu options: the times of a pass are told however far the host is ahead") {
  CHECK(RunOnDouble(2, DoubleEnv(), StayFarAhead) == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
