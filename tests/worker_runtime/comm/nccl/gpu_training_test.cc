// DistributedDataParallel on GPUs, on the double of CUDA and NCCL: gradients arrive by copies,
// since the double runs no kernels of a program.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <doctest/doctest.h>

#include "ddp/distributed_data_parallel.h"
#include "ddp/step_metrics.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/expect.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::internal::CudaPointer;
using ddp::internal::CudaStream;
using ddp::internal::kCudaSuccess;
using Floats = std::vector<float>;

// Three parameters of 1,000 elements, each in a bucket of its own.
constexpr size_t kCount = 1000;
constexpr int kParameters = 3;

struct Model {
  explicit Model(ddp::Communicator& communicator, float value, bool names_stream = false)
      : stream(NewStream()),
        ddp(communicator, {.bucket_cap_bytes = 16,
                           .first_bucket_bytes = 16,
                           .stream = names_stream ? stream : nullptr}) {
    for (int i = 0; i < kParameters; ++i) {
      parameters.emplace_back(Floats(kCount, value));
      ddp.AddParameter("layer" + std::to_string(i), parameters.back().data(), kCount,
                       DType::kFloat32);
    }
  }
  // What a backward pass does for one parameter: the gradient is written on the stream.
  absl::Status Backward(int id, float gradient) {
    Write(id, gradient);
    return ddp.GradientReady(id, stream);
  }
  void Write(int id, float gradient) {
    host_gradients.emplace_back(kCount, gradient);
    DDP_CHECK(Driver().cuMemcpyHtoDAsync(reinterpret_cast<CudaPointer>(ddp.GradientPtr(id)),
                                         host_gradients.back().data(), kCount * sizeof(float),
                                         static_cast<CudaStream>(stream)) == kCudaSuccess);
  }
  Floats Gradient(int id) const {
    Floats values(kCount);
    CudaStream on = static_cast<CudaStream>(stream);
    DDP_CHECK(Driver().cuMemcpyDtoHAsync(values.data(),
                                         reinterpret_cast<CudaPointer>(ddp.GradientPtr(id)),
                                         kCount * sizeof(float), on) == kCudaSuccess);
    DDP_CHECK(Driver().cuStreamSynchronize(on) == kCudaSuccess);
    return values;
  }

  std::vector<DeviceArray> parameters;
  std::vector<Floats> host_gradients;  // until the copies are done
  const ddp::Stream stream;
  ddp::DistributedDataParallel ddp;
};

// The number that the double's log knows a handle by.
uintptr_t IdOf(const void* handle) { return (reinterpret_cast<uintptr_t>(handle) - 0x10000) / 16; }

// Whether this process has a line with `text` in the double's log.
bool Logged(const std::string& text) {
  const std::string mine = "pid=" + std::to_string(getpid()) + " ";
  std::istringstream log(ReadFile(std::getenv("DDPRUN_DOUBLE_LOG")));
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with(mine) && line.find(text) != std::string::npos) return true;
  }
  return false;
}

int TrainTwoSteps(int rank) {
  const auto group = GpuGroup();
  {
    Model model(group->communicator(), static_cast<float>(rank));
    EXPECT(model.ddp.Finalize().ok());
    EXPECT(model.ddp.bucket_count() == kParameters);
    // Rank 0's.
    for (const DeviceArray& parameter : model.parameters) {
      EXPECT(parameter.Read(model.stream) == Floats(kCount, 0));
    }
    EXPECT(model.Gradient(0) == Floats(kCount, 0));
    for (int step = 0; step < 3; ++step) {
      EXPECT(model.ddp.ZeroGrad(model.stream).ok());
      for (int id = kParameters - 1; id >= 0; --id) {
        EXPECT(model.Backward(id, static_cast<float>(10 * step + 2 * rank + id)).ok());
      }
      EXPECT(model.ddp.Finish(model.stream).ok());
      for (int id = 0; id < kParameters; ++id) {
        EXPECT(model.Gradient(id) == Floats(kCount, static_cast<float>(10 * step + id + 1)));
      }
    }
    // Known from a step before, at the latest.
    const ddp::ReductionTimes& times = model.ddp.last_reduction();
    EXPECT(times.communication.count() > 0);
    EXPECT(times.backward_end.time_since_epoch().count() > 0);
    EXPECT(times.communication_end > times.backward_end);
  }
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("gpu training: gradients are averages on the optimizer's stream") {
  CHECK(RunOnDouble(2, DoubleEnv(), TrainTwoSteps) == "0 0");
  CHECK(RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "slow=3"}}), TrainTwoSteps) == "0 0");
}

// Weights are on their way when Finalize is called, behind work that the host has queued.
int FinalizeAtOnce(int rank) {
  const auto group = GpuGroup();
  {
    const ddp::Stream stream = NewStream();
    const DeviceArray weights(Floats(kCount, -1));
    ddp::DistributedDataParallel ddp(group->communicator(), {.stream = stream});
    ddp.AddParameter("weights", weights.data(), kCount, DType::kFloat32);
    const Floats initial(kCount, static_cast<float>(5 + rank));
    const int hold = HoldStream(stream);
    EXPECT(Driver().cuMemcpyHtoDAsync(reinterpret_cast<CudaPointer>(weights.data()), initial.data(),
                                      kCount * sizeof(float),
                                      static_cast<CudaStream>(stream)) == kCudaSuccess);
    // Until the broadcast is behind the stream, or done without it.
    std::atomic<bool> is_finalized = false;
    std::thread releasing([&] {
      const TimePoint deadline = SteadyNow() + std::chrono::seconds(20);
      const std::string behind = "stream=" + std::to_string(IdOf(stream)) + " record event";
      while (!is_finalized && SteadyNow() < deadline && !Logged(behind)) {
      }
      ReleaseStream(hold);
    });
    const absl::Status status = ddp.Finalize();
    is_finalized = true;
    releasing.join();
    EXPECT(status.ok());
    EXPECT(weights.Read(stream) == Floats(kCount, 5));
  }
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("gpu training: rank 0's weights are those that its stream is about to write") {
  const TempDir temp;
  CHECK(RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_LOG", temp.File("log")}}), FinalizeAtOnce) ==
        "0 0");
}

// The device cannot compute the last gradient before the first bucket is reduced: only a reduction
// that runs beside backward, in the very first step, gets past this.
int OverlapInStepOne(int) {
  const auto group = GpuGroup();
  {
    Model model(group->communicator(), 1);
    EXPECT(model.ddp.Finalize().ok());
    EXPECT(model.Backward(2, 1).ok());
    EXPECT(model.Backward(1, 1).ok());
    const int hold = HoldStream(model.stream);
    // Neither announcing nor finishing waits for the device.
    EXPECT(model.Backward(0, 1).ok());
    const TimePoint deadline = SteadyNow() + std::chrono::seconds(20);
    while (!model.ddp.IsReduced(0) && SteadyNow() < deadline) {
    }
    EXPECT(model.ddp.IsReduced(0));
    EXPECT(!model.ddp.IsReduced(2));
    EXPECT(model.ddp.Finish(model.stream).ok());
    ReleaseStream(hold);
    EXPECT(model.Gradient(0) == Floats(kCount, 1));
  }
  EXPECT(group->Shutdown().ok());
  return 0;
}

// The trainer's step failed behind its update: the gradients go while a stream is to read them. It
// is let go once something is recorded behind that, or else the memory is freed.
int ReleaseEarly(int) {
  const auto group = GpuGroup();
  ddp::Stream stream = nullptr;
  const DeviceArray read(Floats(kCount, 0));
  std::thread releasing;
  std::string first;
  {
    Model model(group->communicator(), 1);
    EXPECT(model.ddp.Finalize().ok());
    stream = model.stream;
    for (int id = kParameters - 1; id >= 0; --id) EXPECT(model.Backward(id, 2).ok());
    EXPECT(model.ddp.Finish(stream).ok());
    EXPECT(model.Gradient(0) == Floats(kCount, 2));
    const int hold = HoldStream(stream);
    EXPECT(Driver().cuMemcpyDtoDAsync(reinterpret_cast<CudaPointer>(read.data()),
                                      reinterpret_cast<CudaPointer>(model.ddp.GradientPtr(0)),
                                      kCount * sizeof(float),
                                      static_cast<CudaStream>(stream)) == kCudaSuccess);
    releasing = std::thread([&first, hold] {
      Eventually([&first] { return !(first = FirstBehindCopy()).empty(); });
      ReleaseStream(hold);
    });
  }
  releasing.join();
  EXPECT(first == "record");
  EXPECT(read.Read(stream) == Floats(kCount, 2));
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("gpu training: gradients are not freed under the stream that reads them") {
  for (const auto& [fault, is_registered] :
       {std::pair("", "0"), std::pair("eager_free", "0"), std::pair("eager_free", "1")}) {
    CAPTURE(is_registered);
    const TempDir temp;
    const auto env = DoubleEnv({{"DDPRUN_DOUBLE_LOG", temp.File("log")},
                                {"DDPRUN_DOUBLE_FAULT", fault},
                                {kRegisteredMemory, is_registered}});
    CHECK(RunOnDouble(2, env, ReleaseEarly) == "0 0");
  }
}

// Likewise, and what is on the stream never ends.
TEST_CASE("gpu training: a device that does not end its work does not hang the end of a program") {
  const auto codes = RunOnDouble(1, DoubleEnv(), [](int) {
    const auto group = GpuGroup();
    Model model(group->communicator(), 1);
    EXPECT(model.ddp.Finalize().ok());
    HoldStream(model.stream);
    return 0;
  });
  CHECK(codes == "0");
}

TEST_CASE("gpu training: the first bucket is reduced while backward runs, in step 1") {
  CHECK(RunOnDouble(2, DoubleEnv(), OverlapInStepOne) == "0 0");
}

// The double runs no casts: so every rank hears at Finalize that gradients cannot be cast.
TEST_CASE("gpu training: compression without kernels is refused on all ranks, and they go on") {
  CHECK(RunOnDouble(2, DoubleEnv(), [](int) {
          const auto group = GpuGroup();
          float* none = nullptr;
          ddp::DistributedDataParallel ddp(group->communicator(),
                                           {.compression = ddp::GradientCompression::kBFloat16});
          ddp.AddParameter("p", none, 0, DType::kFloat32);
          const absl::Status status = ddp.Finalize();
          const std::string words(status.message());
          std::fprintf(stderr, "%s\n", status.ToString().c_str());
          EXPECT(words.find(
                     "rank 0 cannot cast gradients to bfloat16: load the kernels of cast.cu") == 0);
          EXPECT(words.find("cuModuleLoadData") != std::string::npos);
          EXPECT(group->communicator().error().ok());
          EXPECT(group->Shutdown().ok());
          return 0;
        }) == "0 0");
  // Nothing travels in a group of one.
  CHECK(RunOnDouble(1, DoubleEnv(), [](int) {
          const auto group = GpuGroup();
          ddp::DistributedDataParallel ddp(group->communicator(),
                                           {.compression = ddp::GradientCompression::kBFloat16});
          EXPECT(ddp.Finalize().ok());
          return 0;
        }) == "0");
}

int TrainOnOptionsStream(int rank) {
  const auto group = GpuGroup();
  {
    Model model(group->communicator(), 0, /*names_stream=*/true);
    EXPECT(model.ddp.Finalize().ok());
    for (int step = 0; step < 2; ++step) {
      const int hold = HoldStream(model.stream);
      EXPECT(model.ddp.ZeroGrad().ok());
      for (int id = kParameters - 1; id >= 0; --id) {
        model.Write(id, static_cast<float>(2 * rank + id));
        EXPECT(model.ddp.GradientReady(id).ok());
      }
      EXPECT(model.ddp.Finish().ok());
      ReleaseStream(hold);
      for (int id = 0; id < kParameters; ++id) {
        EXPECT(model.Gradient(id) == Floats(kCount, static_cast<float>(id + 1)));
      }
    }
  }
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("gpu training: calls that name no stream are on the options' stream") {
  CHECK(RunOnDouble(2, DoubleEnv(), TrainOnOptionsStream) == "0 0");
}

int FinishUnnamed(int rank) {
  const auto group = GpuGroup();
  {
    Model model(group->communicator(), 0);
    EXPECT(model.ddp.Finalize().ok());
    const float mean = static_cast<float>(group->world_size() - 1);
    for (const ddp::Stream optimizer : {ddp::Stream(), model.stream}) {
      for (int id = kParameters - 1; id >= 0; --id) {
        EXPECT(model.Backward(id, static_cast<float>(2 * rank + id)).ok());
      }
      const absl::Status status = model.ddp.Finish();
      EXPECT(absl::IsInvalidArgument(status));
      EXPECT(status.message().find("name the optimizer's stream in Finish()") != std::string::npos);
      // Named, any stream is taken, and the pass is whole.
      EXPECT(model.ddp.Finish(optimizer).ok());
      EXPECT(Driver().cuStreamSynchronize(static_cast<CudaStream>(optimizer)) == kCudaSuccess);
      for (int id = 0; id < kParameters; ++id) {
        EXPECT(model.Gradient(id) == Floats(kCount, mean + static_cast<float>(id)));
      }
    }
  }
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("gpu training: a pass on another stream than the options' ends on a named one only") {
  CHECK(RunOnDouble(2, DoubleEnv(), FinishUnnamed) == "0 0");
  CHECK(RunOnDouble(1, DoubleEnv(), FinishUnnamed) == "0");
}

int TimeSteps(int) {
  constexpr std::chrono::milliseconds kLong(50);  // lower bound: of a step
  const auto group = GpuGroup();
  {
    const ddp::Stream stream = NewStream();
    ddp::StepMetrics metrics(group->communicator(), stream);
    for (int step = 1; step <= 2; ++step) {
      metrics.BeginStep();
      EXPECT(Driver().cuStreamSynchronize(static_cast<CudaStream>(stream)) == kCudaSuccess);
      const TimePoint begin = SteadyNow();
      const int hold = HoldStream(stream);
      metrics.EndStep(10, {});
      // Nobody has waited, and what the device has not ended does not count.
      metrics.Collect();
      EXPECT(metrics.steps() == step - 1);
      while (SteadyNow() - begin < kLong) {
      }
      ReleaseStream(hold);
      EXPECT(Driver().cuStreamSynchronize(static_cast<CudaStream>(stream)) == kCudaSuccess);
    }
    metrics.Collect();
    EXPECT(metrics.steps() == 2);
    EXPECT(metrics.step_ms() >= static_cast<double>(kLong.count()));
    EXPECT(metrics.samples_per_second() > 0);
    EXPECT(metrics.samples_per_second() <= 10 * group->world_size() * 20);
  }
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("gpu training: a step lasts as long as its work on the device") {
  CHECK(RunOnDouble(2, DoubleEnv(), TimeSteps) == "0 0");
}

TEST_CASE("gpu training: gradients of one pass on two streams are refused") {
  CHECK(RunOnDouble(1, DoubleEnv(), [](int) {
          const auto group = GpuGroup();
          Model model(group->communicator(), 1);
          EXPECT(model.ddp.Finalize().ok());
          EXPECT(model.Backward(2, 1).ok());
          const absl::Status status = model.ddp.GradientReady(1, NewStream());
          EXPECT(absl::IsInvalidArgument(status));
          EXPECT(status.message().find("another stream") != std::string::npos);
          return 0;
        }) == "0");
}

// The second of three: both ranks are behind the first then, and the third may not stand for it.
TEST_CASE("gpu training: a rank whose parameter is in host memory fails all ranks at once") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    const auto group = GpuGroup(std::chrono::hours(1));
    ddp::DistributedDataParallel ddp(group->communicator());
    Floats on_host(kCount);
    const DeviceArray first(Floats(kCount, 1)), second(Floats(kCount, 1)), third(Floats(kCount, 1));
    ddp.AddParameter("first", first.data(), kCount, DType::kFloat32);
    ddp.AddParameter("second", rank == 1 ? on_host.data() : second.data(), kCount, DType::kFloat32);
    ddp.AddParameter("third", third.data(), kCount, DType::kFloat32);
    const std::string message = ddp.Finalize().ToString();
    EXPECT(message.find("the input is not memory of a GPU") != std::string::npos);
    EXPECT(!group->communicator().error().ok());
    return 0;
  });
  CHECK(codes == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
