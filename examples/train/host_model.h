// What was trained, in host memory: for checkpoints, checksums and comparisons.
#ifndef DDPRUN_EXAMPLES_TRAIN_HOST_MODEL_H_
#define DDPRUN_EXAMPLES_TRAIN_HOST_MODEL_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"
#include "ddp/communicator.h"
#include "examples/train/network.h"
#include "examples/train/optimizer.h"

namespace train {

// The weights of a network: where it has them on the CPU, in copies of a GPU's. Borrows both. Used
// by the network's thread.
class HostModel {
 public:
  HostModel(Network& network, const ddp::Communicator& communicator);

  // A tensor for each parameter; on a GPU as of the last CopyOut().
  const std::vector<ddp::Tensor>& weights() const { return weights_; }
  // Elements of all of them.
  size_t count() const;
  // From the GPU and back; nothing on the CPU.
  absl::Status CopyOut();
  absl::Status CopyIn();

  // With the optimizer's velocities. Called by all ranks; the file does not tell whether they were
  // sharded.
  absl::Status Save(ddp::Checkpoint& checkpoint, const ddp::TrainingState& state,
                    Optimizer& optimizer);
  // Collective. Nothing where there is no checkpoint; otherwise network and optimizer have its.
  absl::StatusOr<std::optional<ddp::TrainingState>> Load(ddp::Checkpoint& checkpoint,
                                                         Optimizer& optimizer);

 private:
  Network& network_;
  const bool is_rank0_;
  std::vector<std::vector<float>> copies_;  // by parameter; none on the CPU
  std::vector<ddp::Tensor> weights_;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_HOST_MODEL_H_
