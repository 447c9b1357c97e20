// Which samples a rank trains on.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_SAMPLER_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp {

struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;  // the same on all ranks
  // Leaves out the tail so that the samples divide evenly. Otherwise some samples appear twice.
  bool drop_last = false;
};

// The position in an epoch, for a checkpoint. It is the same on all ranks after the same step.
struct SamplerState {
  int64_t epoch = 0;
  int64_t samples_taken = 0;  // by all ranks together
};

// Deals the samples of a data set to the ranks, in a new order each epoch. For the same size,
// ranks, seed and epoch it gives the same indices as PyTorch's torch.utils.data.DistributedSampler
// (torch/utils/data/distributed.py). Rank r has elements r, r + world_size, ... of the epoch's
// order. So the k-th global batch holds the same samples, however many ranks divide it. One thread
// uses it.
class DistributedSampler {
 public:
  // REQUIRES: size >= 0, world_size >= 1, 0 <= rank < world_size. Begins at the start of epoch 0.
  DistributedSampler(int64_t size, int rank, int world_size,
                     DistributedSamplerOptions options = {});

  // Goes to the start of `epoch`, with the order of that epoch. Call it before each epoch, also
  // before the first. Without it every epoch has the same order. Right after Restore(), a call with
  // the restored epoch keeps the restored position.
  void SetEpoch(int64_t epoch);

  // The next `count` indices of this rank, fewer at the end of the epoch, none after it.
  std::vector<int64_t> Next(size_t count);

  // The same number on all ranks.
  int64_t samples_per_rank() const { return static_cast<int64_t>(indices_.size()); }
  int64_t remaining() const { return samples_per_rank() - position_; }

  SamplerState state() const;
  // Continues from `state`. With another world size the position is rounded down to a multiple of
  // it. Up to world_size - 1 samples are seen twice, and none is missed.
  void Restore(const SamplerState& state);

 private:
  void Deal();

  int64_t size_;
  int rank_;
  int world_size_;
  DistributedSamplerOptions options_;
  int64_t epoch_ = 0;
  bool is_restored_ = false;      // SetEpoch has not been called since Restore
  std::vector<int64_t> indices_;  // of this rank in this epoch
  int64_t position_ = 0;          // in indices_
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_SAMPLER_H_
