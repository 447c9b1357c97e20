// The optimizer's state divided among the ranks (ZeRO stage 1).
#ifndef DDPRUN_WORKER_RUNTIME_DDP_ZERO_REDUNDANCY_OPTIMIZER_H_
#define DDPRUN_WORKER_RUNTIME_DDP_ZERO_REDUNDANCY_OPTIMIZER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"
#include "ddp/communicator.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/dtype.h"

namespace ddp {

// Successive elements of one parameter, which one rank updates.
struct ParameterShard {
  int parameter = 0;  // its id
  size_t begin = 0;   // of the shard in the parameter, in elements
  size_t count = 0;
  DType dtype = DType::kFloat32;
  void* values = nullptr;          // `count` elements of the parameter, to be updated in place
  const void* gradient = nullptr;  // their averages over the ranks
  size_t offset = 0;               // of the first in this rank's state, in elements
};

// What ZeroRedundancyOptimizer is to PyTorch. Each rank keeps the optimizer's state for 1/N of the
// elements, updates these, and gets the other elements from the other ranks. The source is
// Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020,
// stage 1. The caller has the optimizer and its state. This class decides which rank updates what.
// Gradients arrive by a reduce-scatter for each bucket during backward, and parameters leave by an
// all-gather for each bucket. So no more bytes travel than in an all-reduce.
//
//   DistributedDataParallel ddp(group->communicator(), {.shard_gradients = true});
//   // AddParameter() for each parameter, then Finalize()
//   auto zero = ZeroRedundancyOptimizer::Create(ddp);
//   std::vector<float> momentum(zero->state_count());  // about 1/N of the model
//   each step:
//     status = ddp.ZeroGrad(); forward; backward; status = ddp.Finish();
//     status = zero->Step([&](const ParameterShard& shard) {
//       auto* values = static_cast<float*>(shard.values);
//       auto* gradient = static_cast<const float*>(shard.gradient);
//       for (size_t i = 0; i < shard.count; ++i) {
//         float& m = momentum[shard.offset + i];
//         m = 0.9f * m + gradient[i];
//         values[i] -= learning_rate * m;
//       }
//       return absl::OkStatus();
//     });
//
// If an update treats each element separately, as SGD and Adam do, the CPU backends give bit for
// bit the parameters of DistributedDataParallel without it. With `nccl` they are as close as a
// reduce-scatter is to an all-reduce, which may sum in another order. Each bucket is divided
// evenly, whatever parameters are in it. PyTorch distributes whole parameters. An optimizer that
// needs whole parameters, for their norm for example, cannot work on shards.
//
// One thread at a time calls it, as for the DistributedDataParallel, which must outlive it.
class ZeroRedundancyOptimizer {
 public:
  using Update = std::function<absl::Status(const ParameterShard&)>;

  // Makes the optimizer of a model. FailedPrecondition before ddp.Finalize() and without
  // `shard_gradients`.
  static absl::StatusOr<ZeroRedundancyOptimizer> Create(DistributedDataParallel& ddp);

  // What this rank updates, in the order of Step(). The ranks' shards are disjoint, and together
  // they are the model. They stay the same as long as the DistributedDataParallel lives.
  const std::vector<ParameterShard>& shards() const { return shards_; }
  // Elements of all shards: the length of each array of state. A rank has at most 1/N of each
  // bucket. The bucket is rounded up to N * 64 bytes, and every tensor in it to 64 bytes.
  size_t state_count() const { return state_count_; }

  // Calls `update` for each of the shards, and gives all ranks the parameters. Collective, once
  // after each Finish(). While later shards are updated, it replaces all other elements of the
  // parameters by those that their ranks have computed. On the CPU all ranks have the same
  // parameters when it returns. On CUDA they have them for what comes later on `stream`, by default
  // that of Finish(), and `update` enqueues there. Gradients are undefined afterwards: ZeroGrad()
  // comes next.
  //
  // A parameter that no rank has used is updated with a gradient of zeros, so its momentum moves
  // it. PyTorch's optimizers skip it. To skip a step, make no call on any rank. Errors:
  // - FailedPrecondition before Finish() and for a second Step() after it.
  // - The error of `update`, and Unknown if it throws. These abort the communicator, since the
  //   other ranks would wait in vain, except in a StepGraph's capture.
  // - The communicator's errors.
  absl::Status Step(const Update& update, std::optional<Stream> stream = std::nullopt);

  // Joins one array of state, in host memory and of type `dtype`, on rank `root`, for a checkpoint.
  // Collective (PyTorch's consolidate_state_dict). On `root`, `full` has a tensor for each
  // parameter, by id, with its count and `dtype`. The other ranks' `full` is not used. It needs
  // memory for one bucket in addition. Errors are InvalidArgument, the same on all ranks, if the
  // tensors do not fit or `state` is null on one, and the communicator's.
  absl::Status GatherState(const void* state, DType dtype, std::span<const Tensor> full,
                           int root = 0);
  // Copies this rank's part of `full` to `state`, the reverse of GatherState(). It works for any
  // number of ranks, after Checkpoint::LoadLatest() has filled `full` on all of them. Not
  // collective. InvalidArgument as above.
  absl::Status TakeState(std::span<const Tensor> full, void* state) const;

 private:
  explicit ZeroRedundancyOptimizer(DistributedDataParallel& ddp) : ddp_(&ddp) {}
  absl::Status Call(const Update& update, const ParameterShard& shard);
  absl::Status UpdateAndGather(const Update& update, Stream stream);
  void Abort(const absl::Status& status);
  absl::Status CopyOut(int bucket, Stream stream);
  absl::Status CheckState(std::span<const Tensor> full, DType dtype) const;

  DistributedDataParallel* ddp_;  // never null
  std::vector<ParameterShard> shards_;
  std::vector<size_t> shard_ends_;  // by bucket: the end of its shards among them
  size_t state_count_ = 0;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_ZERO_REDUNDANCY_OPTIMIZER_H_
