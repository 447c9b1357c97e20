#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "ddp/distributed_data_parallel.h"
#include "ddp/gpu.h"
#include "examples/train/idx_data.h"
#include "examples/train/make_network.h"
#include "examples/train/optimizer.h"
#include "tools/gpu_check_program/rank.h"
#include "tools/gpu_check_program/rank_commands.h"

namespace ddprun::gpu_check {
namespace {

constexpr int kTurns = 15, kSteps = 60;
constexpr float kLearningRate = 0.01f;

// The trainer's loop over one network, once with the library and once as a program without one
// would write it.
class Loop {
 public:
  Loop(const train::Options& options, ddp::ProcessGroup& group, const train::ImageSet& images,
       bool has_library)
      : options_(options), group_(group), images_(images) {
    auto network = train::MakeNetwork(options, group, images.pixels_per_image());
    MustBeOk("network", network.status());
    network_ = *std::move(network);
    if (has_library) {
      UseLibrary();
    } else {
      MakeGradients();
    }
    auto optimizer = train::Optimizer::Create(*network_);
    MustBeOk("optimizer", optimizer.status());
    optimizer_.emplace(*std::move(optimizer));
  }

  // The mean of some steps, waited for at the end.
  double Milliseconds() {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) Step();
    MustBeOk("tally", network_->TakeTally().status());
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    return time.count() / kSteps;
  }

 private:
  void UseLibrary() {
    ddp_ = std::make_unique<ddp::DistributedDataParallel>(
        group_.communicator(), ddp::DistributedDataParallelOptions{.stream = network_->stream()});
    for (const train::Parameter& p : network_->parameters()) {
      ddp_->AddParameter(p.name, p.values, p.count, ddp::DType::kFloat32);
    }
    MustBeOk("finalize", ddp_->Finalize());
    int id = 0;
    for (train::Parameter& p : network_->parameters()) {
      p.gradient = static_cast<float*>(ddp_->GradientPtr(id++));
    }
  }

  // In one piece, as the library has them, so that one call zeroes all.
  void MakeGradients() {
    constexpr size_t kAlign = 16;
    size_t total = 0;
    for (const train::Parameter& p : network_->parameters()) {
      total += (p.count + kAlign - 1) / kAlign * kAlign;
    }
    bytes_ = total * sizeof(float);
    if (group_.gpu() < 0) {
      host_.resize(total);
      gradients_ = host_.data();
    } else {
      auto gpu = ddp::Gpu::Use(group_.gpu());
      MustBeOk("gpu", gpu.status());
      gpu_ = *std::move(gpu);
      auto memory = gpu_->Allocate("gradients", bytes_);
      MustBeOk("gradients", memory.status());
      device_ = *std::move(memory);
      gradients_ = static_cast<float*>(device_.get());
    }
    size_t offset = 0;
    for (train::Parameter& p : network_->parameters()) {
      p.gradient = gradients_ + offset;
      offset += (p.count + kAlign - 1) / kAlign * kAlign;
    }
  }

  void ZeroGradients() {
    if (group_.gpu() < 0) {
      std::memset(gradients_, 0, bytes_);
      return;
    }
    MustBeOk("zero", gpu_->Fill("gradients", gradients_, 0, bytes_, network_->stream()));
  }

  void Step() {
    const size_t batch = static_cast<size_t>(options_.batch_size);
    indices_.resize(batch);
    for (int64_t& index : indices_) index = next_++ % images_.count;
    absl::Status status;
    if (ddp_ != nullptr) {
      status = ddp_->ZeroGrad();
    } else {
      ZeroGradients();
    }
    status.Update(network_->Forward(images_, indices_));
    MustBeOk("forward", status);
    status.Update(network_->Backward(1.0f / static_cast<float>(batch), [&](int parameter) {
      if (ddp_ != nullptr) status.Update(ddp_->GradientReady(parameter));
    }));
    if (ddp_ != nullptr) status.Update(ddp_->Finish());
    MustBeOk("backward", status);
    MustBeOk("update", optimizer_->Step(kLearningRate));
  }

  const train::Options& options_;
  ddp::ProcessGroup& group_;
  const train::ImageSet& images_;
  std::unique_ptr<train::Network> network_;
  std::unique_ptr<ddp::DistributedDataParallel> ddp_;  // null without the library
  std::optional<train::Optimizer> optimizer_;
  std::vector<float> host_;
  std::optional<ddp::Gpu> gpu_;
  ddp::DeviceMemory device_;
  float* gradients_ = nullptr;
  size_t bytes_ = 0;
  std::vector<int64_t> indices_;
  int64_t next_ = 0;
};

}  // namespace

int StepTime(const Arguments& arguments) {
  if (arguments.size() != 4) return 2;
  const absl::StatusOr<train::ImageSet> images = train::LoadImageSet(arguments[0], "train");
  MustBeOk("load", images.status());
  train::Options options;
  options.hidden = std::atoi(arguments[1].c_str());
  options.batch_size = std::atoi(arguments[2].c_str());
  const bool is_cpu = arguments[3] == "cpu";
  const auto group = ddp::ProcessGroup::FromEnv(
      {.backend = arguments[3] == "nccl" ? ddp::Backend::kNccl : ddp::Backend::kAuto,
       .device = is_cpu ? ddp::DeviceChoice::kCpu : ddp::DeviceChoice::kCuda});
  MustBeOk("join the group", group.status());
  {
    Loop with(options, **group, *images, true), without(options, **group, *images, false);
    std::vector<double> with_ms, without_ms;
    for (Loop* loop : {&with, &without}) loop->Milliseconds();
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn % 2 == 0) with_ms.push_back(with.Milliseconds());
      without_ms.push_back(without.Milliseconds());
      if (turn % 2 == 1) with_ms.push_back(with.Milliseconds());
    }
    PrintValue("with_ms", Median(with_ms));
    PrintValue("without_ms", Median(without_ms));
  }
  MustBeOk("shut down", (*group)->Shutdown());
  return EXIT_SUCCESS;
}

}  // namespace ddprun::gpu_check
