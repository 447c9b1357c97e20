#include "examples/train/optimizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace train {
namespace {

using Clock = std::chrono::steady_clock;

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

absl::StatusOr<Optimizer> Optimizer::Create(Network& network,
                                            ddp::DistributedDataParallel* sharding) {
  Optimizer optimizer(network);
  if (sharding == nullptr) {
    optimizer.shards_ = WholeParameters(network.parameters());
  } else {
    auto zero = ddp::ZeroRedundancyOptimizer::Create(*sharding);
    if (!zero.ok()) return zero.status();
    optimizer.shards_ = zero->shards();
    optimizer.zero_.emplace(*std::move(zero));
  }
  for (const ddp::ParameterShard& shard : optimizer.shards_) optimizer.count_ += shard.count;
  const absl::StatusOr<float*> velocities = network.MakeZeros("the velocities", optimizer.count_);
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
  if (!is_sharded()) {
    for (const ddp::ParameterShard& shard : shards_) {
      if (status.ok()) status = Update(shard, learning_rate);
    }
    return status;
  }
  std::chrono::nanoseconds updating{0};
  const Clock::time_point begin = Clock::now();
  status = zero_->Step([&](const ddp::ParameterShard& shard) {
    const Clock::time_point update_begin = Clock::now();
    absl::Status updated = Update(shard, learning_rate);
    updating += Clock::now() - update_begin;
    return updated;
  });
  wait_ = Clock::now() - begin - updating;
  return status;
}

void Optimizer::AddWait(ddp::ReductionTimes& times) const {
  if (!is_sharded() || network_->stream() != nullptr) return;
  times.communication_end = std::max(times.backward_end, times.communication_end) + wait_;
  times.communication += wait_;
}

absl::Status Optimizer::CopyOut(std::span<const ddp::Tensor> velocities) {
  absl::Status status;
  if (is_sharded()) {
    std::vector<float> mine(count_);
    if (count_ > 0) status = network_->CopyOut(velocities_, mine.data(), count_);
    if (!status.ok()) return status;
    return zero_->GatherState(mine.data(), ddp::DType::kFloat32, velocities);
  }
  if (velocities.empty()) return status;  // not rank 0
  for (const ddp::ParameterShard& shard : shards_) {
    status.Update(network_->CopyOut(velocities_ + shard.offset,
                                    static_cast<float*>(velocities[shard.parameter].data),
                                    shard.count));
  }
  return status;
}

absl::Status Optimizer::CopyIn(std::span<const ddp::Tensor> velocities) {
  absl::Status status;
  if (is_sharded()) {
    std::vector<float> mine(count_);
    status = zero_->TakeState(velocities, mine.data());
    if (!status.ok() || count_ == 0) return status;
    return network_->CopyIn(mine.data(), velocities_, count_);
  }
  for (const ddp::ParameterShard& shard : shards_) {
    status.Update(network_->CopyIn(static_cast<const float*>(velocities[shard.parameter].data),
                                   velocities_ + shard.offset, shard.count));
  }
  return status;
}

}  // namespace train
