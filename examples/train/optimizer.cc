#include "examples/train/optimizer.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace train {
namespace {

// As if one rank had all shards.
std::vector<ddp::ParameterShard> WholeParameters(const std::vector<Parameter>& parameters) {
  std::vector<ddp::ParameterShard> shards;
  size_t offset = 0;
  for (const Parameter& parameter : parameters) {
    shards.push_back({.parameter = static_cast<int>(shards.size()),
                      .count = parameter.count,
                      .values = parameter.values,
                      .gradient = parameter.gradient,
                      .offset = offset});
    offset += parameter.count;
  }
  return shards;
}

}  // namespace

absl::StatusOr<Optimizer> Optimizer::Create(Network& network) {
  Optimizer optimizer(network, WholeParameters(network.parameters()));
  size_t count = 0;
  for (const ddp::ParameterShard& shard : optimizer.shards_) count += shard.count;
  const absl::StatusOr<float*> velocities = network.MakeZeros("the velocities", count);
  if (!velocities.ok()) return velocities.status();
  optimizer.velocities_ = *velocities;
  return optimizer;
}

absl::Status Optimizer::Update(const ddp::ParameterShard& shard, float learning_rate) {
  const absl::Status status =
      network_->Update({.values = static_cast<float*>(shard.values),
                        .velocity = velocities_ + shard.offset,
                        .gradient = static_cast<const float*>(shard.gradient),
                        .count = shard.count},
                       learning_rate);
  if (status.ok()) return status;
  const std::string& name = network_->parameters()[shard.parameter].name;
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

absl::Status Optimizer::Step(float learning_rate) {
  absl::Status status;
  for (const ddp::ParameterShard& shard : shards_) {
    if (status.ok()) status = Update(shard, learning_rate);
  }
  return status;
}

absl::Status Optimizer::CopyOut(std::span<const ddp::Tensor> velocities) {
  absl::Status status;
  for (const ddp::ParameterShard& shard : shards_) {
    status.Update(network_->CopyOut(velocities_ + shard.offset,
                                    static_cast<float*>(velocities[shard.parameter].data),
                                    shard.count));
  }
  return status;
}

absl::Status Optimizer::CopyIn(std::span<const ddp::Tensor> velocities) {
  absl::Status status;
  for (const ddp::ParameterShard& shard : shards_) {
    status.Update(network_->CopyIn(static_cast<const float*>(velocities[shard.parameter].data),
                                   velocities_ + shard.offset, shard.count));
  }
  return status;
}

}  // namespace train
