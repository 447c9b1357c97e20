#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "ddp/distributed_data_parallel.h"
#include "tools/gpu_check_program/rank.h"
#include "tools/gpu_check_program/rank_commands.h"

namespace ddprun::gpu_check {
namespace {

constexpr int kLayers = 8;
constexpr int kCopies = 20;  // of a layer: its backward pass
constexpr int kWarmUp = 5, kSteps = 30;

// Backward passes whose work is copies on the device, so that no kernel of ours is needed.
class Backward {
 public:
  Backward(ddp::ProcessGroup& group, Gpu& gpu, size_t bytes)
      : group_(group), gpu_(gpu), bytes_(bytes) {
    activations_ = gpu.Allocate(bytes);
    scratch_ = gpu.Allocate(bytes);
  }

  void Compute(void* gradient) {
    for (int i = 0; i < kCopies; ++i) gpu_.Copy(scratch_, activations_, bytes_);
    gpu_.Copy(gradient, activations_, bytes_);
  }

  // As a program trains; the times are those of the pass before.
  ddp::ReductionTimes WithLibrary(ddp::DistributedDataParallel& ddp) {
    MustBeOk("zero", ddp.ZeroGrad());
    for (int i = kLayers - 1; i >= 0; --i) {
      Compute(ddp.GradientPtr(i));
      MustBeOk("gradient", ddp.GradientReady(i));
    }
    MustBeOk("finish", ddp.Finish());
    gpu_.Synchronize();
    return ddp.last_reduction();
  }

  // One rank needs no reduction, and the library makes none: here its communicator makes them.
  ddp::ReductionTimes OfOneRank(char* gradients) {
    std::vector<std::unique_ptr<ddp::Work>> works;
    for (int i = 0; i < kLayers; ++i) {
      Compute(gradients + i * bytes_);
      works.push_back(group_.communicator().AllReduce(gradients + i * bytes_,
                                                      bytes_ / sizeof(float), ddp::DType::kFloat32,
                                                      ddp::ReduceOp::kAverage, gpu_.stream()));
    }
    ddp::ReductionTimes times;
    for (auto& work : works) {
      MustBeOk("all-reduce", work->Wait());
      times.communication += work->ended_at() - work->started_at();
    }
    times.backward_end = works.back()->issued_at();
    times.communication_end = works.back()->ended_at();
    return times;
  }

 private:
  ddp::ProcessGroup& group_;
  Gpu& gpu_;
  const size_t bytes_;
  void* activations_ = nullptr;
  void* scratch_ = nullptr;
};

double Milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

int Overlap(const Arguments& arguments) {
  if (arguments.size() != 1) return 2;
  const size_t bytes = std::strtoull(arguments[0].c_str(), nullptr, 10);
  const auto group = JoinGroup(ddp::Backend::kNccl);
  Gpu gpu(group->gpu());
  Backward backward(*group, gpu, bytes);
  ddp::DistributedDataParallel ddp(
      group->communicator(),
      {.bucket_cap_bytes = bytes, .first_bucket_bytes = bytes, .stream = gpu.stream()});
  for (int i = 0; i < kLayers; ++i) {
    ddp.AddParameter(absl::StrCat("layer", i), gpu.Allocate(bytes), bytes / sizeof(float),
                     ddp::DType::kFloat32);
  }
  MustBeOk("finalize", ddp.Finalize());
  char* const gradients = static_cast<char*>(gpu.Allocate(kLayers * bytes));
  std::vector<double> communication, exposed;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    const ddp::ReductionTimes times =
        group->world_size() == 1 ? backward.OfOneRank(gradients) : backward.WithLibrary(ddp);
    if (step < kWarmUp) continue;
    communication.push_back(Milliseconds(times.communication));
    exposed.push_back(Milliseconds(times.Exposed()));
  }
  if (group->rank() == 0) {
    PrintValue("communication_ms", Median(communication));
    PrintValue("exposed_ms", Median(exposed));
  }
  MustBeOk("shut down", group->Shutdown());
  return EXIT_SUCCESS;
}

}  // namespace ddprun::gpu_check
