#include "tests/worker_runtime/comm/nccl/graph_training.h"

#include <cstdio>
#include <utility>

#include "rendezvous/base/check.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {

using ddp::internal::CudaPointer;
using ddp::internal::CudaStream;
using ddp::internal::kCudaSuccess;
using Floats = std::vector<float>;

bool Has(const std::string& text, const std::string& words) {
  if (text.find(words) != std::string::npos) return true;
  std::fprintf(stderr, "not \"%s\": %s\n", words.c_str(), text.c_str());
  return false;
}

GraphTraining::GraphTraining(bool is_sharded)
    : group_(GpuGroup()),
      ddp_(group_->communicator(),
           {.bucket_cap_bytes = 16, .first_bucket_bytes = 16, .shard_gradients = is_sharded}),
      stream_(NewStream()) {
  for (int id = 0; id < kParameters; ++id) {
    parameters_.emplace_back(Floats(kCount, 0));
    inputs_.emplace_back(Floats(kCount, 0));
    ddp_.AddParameter("layer" + std::to_string(id), parameters_.back().data(), kCount,
                      ddp::DType::kFloat32);
  }
  DDP_CHECK(ddp_.Finalize().ok());
  if (is_sharded) {
    auto zero = ddp::ZeroRedundancyOptimizer::Create(ddp_);
    DDP_CHECK(zero.ok());
    zero_.emplace(*std::move(zero));
  }
  auto graph = ddp::StepGraph::Create(group_->communicator(), stream_);
  DDP_CHECK(graph.ok());
  graph_ = *std::move(graph);
}

GraphTraining::~GraphTraining() {
  if (communicator().error().ok()) DDP_CHECK(group_->Shutdown().ok());
}

void GraphTraining::Copy(const void* to, const void* from, size_t count) const {
  DDP_CHECK(Driver().cuMemcpyDtoDAsync(reinterpret_cast<CudaPointer>(to),
                                       reinterpret_cast<CudaPointer>(from), count * sizeof(float),
                                       static_cast<CudaStream>(stream_)) == kCudaSuccess);
}

absl::Status GraphTraining::Backward(int id) {
  Copy(ddp_.GradientPtr(id), inputs_[static_cast<size_t>(id)].data());
  return ddp_.GradientReady(id, stream_);
}

absl::Status GraphTraining::Step() {
  absl::Status status = ddp_.ZeroGrad(stream_);
  for (int id = kParameters - 1; id >= 0 && status.ok(); --id) status = Backward(id);
  if (status.ok()) status = ddp_.Finish(stream_);
  if (status.ok() && zero_.has_value()) return Update();
  for (int id = 0; id < kParameters && status.ok(); ++id) {
    Copy(parameters_[static_cast<size_t>(id)].data(), ddp_.GradientPtr(id));
  }
  return status;
}

absl::Status GraphTraining::Update() {
  return zero_->Step(
      [this](const ddp::ParameterShard& shard) {
        if (shard.parameter == 1 && !update_failure_.ok()) {
          return std::exchange(update_failure_, absl::OkStatus());
        }
        Copy(shard.values, shard.gradient, shard.count);
        // The gradients carry the parameters: these must get there, and are not there by chance.
        DDP_CHECK(Driver().cuMemsetD8Async(reinterpret_cast<CudaPointer>(shard.gradient), 0xff,
                                           shard.count * sizeof(float),
                                           static_cast<CudaStream>(stream_)) == kCudaSuccess);
        return absl::OkStatus();
      },
      stream_);
}

void GraphTraining::NextInputs(int number) {
  for (int id = 0; id < kParameters; ++id) {
    const auto value = static_cast<float>(100 * number + 10 * id + 2 * group_->rank());
    host_inputs_.emplace_back(kCount, value);
    DDP_CHECK(Driver().cuMemcpyHtoDAsync(
                  reinterpret_cast<CudaPointer>(inputs_[static_cast<size_t>(id)].data()),
                  host_inputs_.back().data(), kCount * sizeof(float),
                  static_cast<CudaStream>(stream_)) == kCudaSuccess);
  }
}

bool GraphTraining::HasTrained(int number) const {
  const int mean_of_ranks = group_->world_size() - 1;  // of 2 * rank
  for (int id = 0; id < kParameters; ++id) {
    const Floats expected(kCount, static_cast<float>(100 * number + 10 * id + mean_of_ranks));
    if (parameters_[static_cast<size_t>(id)].Read(stream_) != expected) return false;
  }
  return true;
}

bool GraphTraining::Train(int number) {
  NextInputs(number);
  return graph_->Run(step()).ok() && HasTrained(number);
}

bool GraphTraining::Replay(int number) {
  NextInputs(number);
  return graph_->Replay().ok() && HasTrained(number);
}

absl::Status GraphTraining::AwaitEnd() const {
  Eventually([this] { return !communicator().error().ok(); });
  return communicator().error();
}

}  // namespace ddprun::testing
