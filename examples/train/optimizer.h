// Updates the weights and keeps what that needs: a velocity for each of them, all on every rank, or
// each on one.
#ifndef DDPRUN_EXAMPLES_TRAIN_OPTIMIZER_H_
#define DDPRUN_EXAMPLES_TRAIN_OPTIMIZER_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/step_metrics.h"
#include "ddp/zero_redundancy_optimizer.h"
#include "examples/train/network.h"

namespace train {

// Borrows the network, which does the arithmetic and owns the memory. Used by the network's thread.
class Optimizer {
 public:
  // Starts with velocities of 0. With `sharding`, which has `shard_gradients` and the network's
  // parameters, a rank keeps those of its shards, and the others' weights come from the others; it
  // outlives this. Null: all of them. REQUIRES: every parameter has a gradient.
  static absl::StatusOr<Optimizer> Create(Network& network,
                                          ddp::DistributedDataParallel* sharding = nullptr);

  bool is_sharded() const { return zero_.has_value(); }
  // Velocities that this rank keeps.
  size_t count() const { return count_; }

  // Behind the averages of the gradients. Collective where sharded.
  absl::Status Step(float learning_rate);
  // Adds to the times of the gradients' reduction what the last Step() waited for weights. On a GPU
  // nothing: there the host does not wait.
  void AddWait(ddp::ReductionTimes& times) const;

  // The velocities in host memory, a tensor for each parameter, in their order. Out to rank 0's,
  // the others' are not looked at; collective where sharded.
  absl::Status CopyOut(std::span<const ddp::Tensor> velocities);
  // In from each rank's own, which are all the same.
  absl::Status CopyIn(std::span<const ddp::Tensor> velocities);

 private:
  explicit Optimizer(Network& network) : network_(&network) {}

  absl::Status Update(const ddp::ParameterShard& shard, float learning_rate);

  Network* network_;  // never null
  std::optional<ddp::ZeroRedundancyOptimizer> zero_;
  std::vector<ddp::ParameterShard> shards_;  // whole parameters where it is not sharded
  size_t count_ = 0;
  float* velocities_ = nullptr;  // of the shards, by their offsets
  std::chrono::nanoseconds wait_{0};
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_OPTIMIZER_H_
