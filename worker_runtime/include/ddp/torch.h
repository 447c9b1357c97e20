// What DistributedDataParallel is in Python, for libtorch.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_TORCH_H_
#define DDPRUN_WORKER_RUNTIME_DDP_TORCH_H_

#include <optional>
#include <utility>

#include "ddp/distributed_data_parallel.h"
#include "ddp/process_group.h"
#include "ddp/torch_gradients.h"

namespace ddp::torch {

// Trains one module on all ranks of a group. Each rank starts with rank 0's weights, and each
// loss.backward() ends with gradients that are averages over the ranks.
//
//   Net net;  // a TORCH_MODULE, or a std::shared_ptr to a module; on its device already
//   ddp::torch::DistributedDataParallel model(net, *group);
//   ::torch::optim::SGD optimizer(net->parameters(), 0.1);
//   for (each batch) {
//     optimizer.zero_grad();
//     auto loss = ::torch::nll_loss(model.forward(batch.data), batch.target);
//     loss.backward();
//     optimizer.step();
//   }
//
// A gradient is reduced in the library's memory. After each backward pass the parameter's grad() is
// a view of it (gradient_as_bucket_view in Python). If autograd or the program has replaced grad(),
// as after zero_grad(), the new one is copied there once.
//
// This class throws, as libtorch does. No other public header throws. An error in autograd comes
// out of loss.backward(), which has no other way to report it. It is a c10::Error with one sentence
// (what_without_backtrace()), and is final for the group. The other ranks end with the same
// sentence or with the name of the rank that left.
//
// A backward pass is reduced after a forward() that is not under NoSync. Call backward() or
// ::torch::autograd::backward(), without create_graph, and not in the middle of another backward
// pass. One thread at a time calls this. The group must outlive it. When this object is destroyed,
// gradients that the program keeps become copies. The module's tensors must stay where they are
// while it lives: move the module (to()) before.
template <typename Module>
class DistributedDataParallel {
 public:
  // Wraps a module. Collective. Options are those of ddp::DistributedDataParallel. But
  // shard_gradients is refused, and `stream` is CUDA's current one. It throws:
  // - if the module has no parameter that requires a gradient;
  // - if parameters or buffers overlap, are not dense or are on another device than the group's;
  // - if a parameter has a type that cannot be averaged;
  // - if the module differs from another rank's, with the tensor's name.
  DistributedDataParallel(Module module, ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)), gradients_(*module_, group, options) {}

  // Calls the module's forward(). Collective if there are buffers: all ranks get rank 0's before
  // it, also in evaluation, as in Python. On one rank alone evaluate module() instead.
  template <typename... Args>
  auto forward(Args&&... args) {
    gradients_.PrepareForward();
    return module_->forward(std::forward<Args>(args)...);
  }

  Module& module() { return module_; }

  // While a guard lives, forward() begins passes that reduce nothing: gradients add up. The next
  // pass without it reduces the sums (no_sync() in Python). It counts when forward() is called, not
  // in backward(). With `is_active` = false it has no effect.
  using NoSyncGuard = internal::Gradients::NoSyncGuard;
  [[nodiscard]] NoSyncGuard NoSync(bool is_active = true) { return gradients_.NoSync(is_active); }

  // For ranks with different numbers of batches. See ddp::DistributedDataParallel::Join.
  //
  //   auto join = model.Join();
  //   for (each batch of this rank) { forward, backward, step }
  //   join.Wait();  // takes part in the others' passes until all are done
  class JoinGuard {
   public:
    explicit JoinGuard(ddp::DistributedDataParallel::JoinGuard guard) : guard_(std::move(guard)) {}
    void Wait() { internal::Check(guard_.Wait()); }

   private:
    ddp::DistributedDataParallel::JoinGuard guard_;
  };
  [[nodiscard]] JoinGuard Join(bool divide_by_initial_world_size = true) {
    auto guard = ddp().Join(divide_by_initial_world_size, gradients_.CurrentStream());
    internal::Check(guard.status());
    return JoinGuard(*std::move(guard));
  }

  // The library's object, for communication hooks and for times and buckets of the last pass.
  ddp::DistributedDataParallel& ddp() { return gradients_.ddp(); }

 private:
  Module module_;
  internal::Gradients gradients_;
};

}  // namespace ddp::torch

#endif  // DDPRUN_WORKER_RUNTIME_DDP_TORCH_H_
