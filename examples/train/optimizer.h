// Updates the weights and keeps what that needs: a velocity for each of them.
#ifndef DDPRUN_EXAMPLES_TRAIN_OPTIMIZER_H_
#define DDPRUN_EXAMPLES_TRAIN_OPTIMIZER_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"
#include "ddp/zero_redundancy_optimizer.h"
#include "examples/train/network.h"

namespace train {

// Borrows the network, which does the arithmetic and owns the memory. Used by the network's thread.
class Optimizer {
 public:
  // Starts with velocities of 0. REQUIRES: every parameter has a gradient.
  static absl::StatusOr<Optimizer> Create(Network& network);

  // Behind the averages of the gradients.
  absl::Status Step(float learning_rate);

  // Copies the velocities out to the host and back: a tensor for each parameter, in their order.
  absl::Status CopyOut(std::span<const ddp::Tensor> velocities);
  absl::Status CopyIn(std::span<const ddp::Tensor> velocities);

 private:
  Optimizer(Network& network, std::vector<ddp::ParameterShard> shards)
      : network_(&network), shards_(std::move(shards)) {}

  absl::Status Update(const ddp::ParameterShard& shard, float learning_rate);

  Network* network_;                         // never null
  std::vector<ddp::ParameterShard> shards_;  // the parameters
  float* velocities_ = nullptr;              // of all shards, by their offsets
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_OPTIMIZER_H_
