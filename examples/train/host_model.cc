#include "examples/train/host_model.h"

#include <utility>

namespace train {
namespace {

using ddp::DType;
using ddp::Tensor;

// The velocities in host memory, for the moment.
struct Velocities {
  explicit Velocities(const std::vector<Tensor>& weights) {
    for (const Tensor& weight : weights) {
      memory.emplace_back(weight.count);
      tensors.push_back(
          {weight.name + ".velocity", memory.back().data(), weight.count, DType::kFloat32});
    }
  }
  std::vector<std::vector<float>> memory;
  std::vector<Tensor> tensors;
};

std::vector<Tensor> Together(std::vector<Tensor> weights, const std::vector<Tensor>& velocities) {
  weights.insert(weights.end(), velocities.begin(), velocities.end());
  return weights;
}

}  // namespace

HostModel::HostModel(Network& network, const ddp::Communicator& communicator)
    : network_(network), is_rank0_(communicator.rank() == 0) {
  const bool is_on_gpu = communicator.device_type() == ddp::DeviceType::kCuda;
  for (const Parameter& p : network.parameters()) {
    if (is_on_gpu) copies_.emplace_back(p.count);
    weights_.push_back(
        {p.name, is_on_gpu ? copies_.back().data() : p.values, p.count, DType::kFloat32});
  }
}

size_t HostModel::count() const {
  size_t count = 0;
  for (const Tensor& weight : weights_) count += weight.count;
  return count;
}

absl::Status HostModel::CopyOut() {
  absl::Status status;
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Parameter& p = network_.parameters()[i];
    status.Update(network_.CopyOut(p.values, copies_[i].data(), p.count));
  }
  return status;
}

absl::Status HostModel::CopyIn() {
  absl::Status status;
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Parameter& p = network_.parameters()[i];
    status.Update(network_.CopyIn(copies_[i].data(), p.values, p.count));
  }
  return status;
}

absl::Status HostModel::Save(ddp::Checkpoint& checkpoint, const ddp::TrainingState& state,
                             Optimizer& optimizer) {
  Velocities velocities(is_rank0_ ? weights_ : std::vector<Tensor>());  // which alone writes
  absl::Status status = optimizer.CopyOut(velocities.tensors);
  if (status.ok() && is_rank0_) status = CopyOut();
  if (!status.ok()) return status;
  return checkpoint.Save(state, Together(weights_, velocities.tensors));
}

absl::StatusOr<std::optional<ddp::TrainingState>> HostModel::Load(ddp::Checkpoint& checkpoint,
                                                                  Optimizer& optimizer) {
  Velocities velocities(weights_);
  auto loaded = checkpoint.LoadLatest(Together(weights_, velocities.tensors));
  if (!loaded.ok() || !loaded->has_value()) return loaded;
  absl::Status status = CopyIn();
  if (status.ok()) status = optimizer.CopyIn(velocities.tensors);
  if (!status.ok()) return status;
  return loaded;
}

}  // namespace train
