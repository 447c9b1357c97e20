#include <chrono>
#include <cstdlib>
#include <functional>

#include "absl/strings/str_cat.h"
#include "ddp/distributed_data_parallel.h"
#include "tools/gpu_check_program/captured_step.h"
#include "tools/gpu_check_program/rank.h"
#include "tools/gpu_check_program/rank_commands.h"

namespace ddprun::gpu_check {
namespace {

constexpr int kLayers = 8;
constexpr int kSteps = 20;

// A step that copies its inputs into the gradients and, instead of an optimizer, the averages out.
class Training {
 public:
  // layer_bytes: of float32.
  Training(ddp::ProcessGroup& group, size_t layer_bytes)
      : group_(group),
        bytes_(layer_bytes),
        count_(layer_bytes / sizeof(float)),
        gpu_(group.gpu()),
        ddp_(group.communicator(), {.bucket_cap_bytes = bytes_, .first_bucket_bytes = bytes_}) {
    input_ = gpu_.Allocate(bytes_);
    for (int i = 0; i < kLayers; ++i) {
      results_.push_back(gpu_.Allocate(bytes_));
      ddp_.AddParameter(absl::StrCat("layer", i), results_.back(), count_, ddp::DType::kFloat32);
    }
    MustBeOk("finalize", ddp_.Finalize());
  }
  ddp::Stream stream() const { return gpu_.stream(); }

  absl::Status Step() {
    absl::Status status = ddp_.ZeroGrad(stream());
    for (int i = kLayers - 1; i >= 0 && status.ok(); --i) {
      gpu_.Copy(ddp_.GradientPtr(i), input_, bytes_);
      status = ddp_.GradientReady(i, stream());
    }
    if (status.ok()) status = ddp_.Finish(stream());
    for (int i = 0; i < kLayers && status.ok(); ++i) {
      gpu_.Copy(results_[i], ddp_.GradientPtr(i), bytes_);
    }
    return status;
  }

  // New inputs, `step`, and whether every result is their average. Returns the step's milliseconds.
  double Check(int number, const std::function<void()>& step) {
    const std::vector<float> inputs(count_, static_cast<float>(10 * number + group_.rank()));
    gpu_.Write(input_, inputs.data(), bytes_);
    const auto begin = std::chrono::steady_clock::now();
    step();
    gpu_.Synchronize();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    const float expected = 10 * number + static_cast<float>(group_.world_size() - 1) / 2;
    std::vector<float> values(count_);
    for (void* result : results_) {
      gpu_.Read(values.data(), result, bytes_);
      for (float value : values) {
        if (value == expected) continue;
        MustBeOk(absl::StrCat("step ", number),
                 absl::InternalError(absl::StrCat("expected ", expected, ", got ", value)));
      }
    }
    return time.count();
  }

 private:
  ddp::ProcessGroup& group_;
  const size_t bytes_, count_;  // of a layer
  Gpu gpu_;
  ddp::DistributedDataParallel ddp_;
  void* input_ = nullptr;
  std::vector<void*> results_;
};

}  // namespace

int StepInGraph(const Arguments& arguments) {
  if (arguments.size() != 1) return 2;
  const auto group = JoinGroup(ddp::Backend::kNccl);
  {
    // Ends before the group does.
    Training training(*group, std::strtoull(arguments[0].c_str(), nullptr, 10));
    const auto step = [&] { return training.Step(); };
    std::vector<double> run_ms, replay_ms;
    int number = 0;
    for (int i = 0; i < kSteps; ++i) {
      run_ms.push_back(training.Check(++number, [&] { MustBeOk("step", step()); }));
    }
    const auto replay = CaptureStep(group->communicator(), training.stream(), step);
    for (int i = 0; i < kSteps; ++i) replay_ms.push_back(training.Check(++number, replay));
    if (group->rank() == 0) {
      PrintValue("run_ms", Median(run_ms));
      PrintValue("replay_ms", Median(replay_ms));
    }
  }
  MustBeOk("shut down", group->Shutdown());
  return EXIT_SUCCESS;
}

}  // namespace ddprun::gpu_check
