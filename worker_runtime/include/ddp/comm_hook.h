// How a program reduces gradients in its own way: compressed, by other collectives, or not at all.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp {

// Gradients that are reduced together, all of which are there.
struct GradientBucket {
  void* data = nullptr;
  // Elements, those between two gradients included: zeros, or what a hook has left there.
  size_t count = 0;
  DType dtype = DType::kFloat32;
  int index = 0;  // from 0, in the order of the calls, which is the same on all ranks
  bool is_last = false;
  Stream stream = nullptr;  // CUDA: where the gradients were computed
};

// Called for each bucket of a synchronised pass, on the thread that announces gradients, as soon as
// the bucket and those before it are complete; also in a group of one. Where gradients may be
// missing that is as late as Finish(), and on a rank that has joined in JoinGuard::Wait(), with
// zeros. Starts what is to be done
// and returns it. What stands in the bucket when the work's Wait() (CPU) or WaitOn() (CUDA) is over
// is the result: nothing divides it. Every rank makes the same calls to the communicator. To do
// more than one operation, return a Work of your own that does the rest when it is waited for. What
// it refers to outlives the DistributedDataParallel; what it throws ends the pass and the group.
using CommHook =
    std::function<std::unique_ptr<Work>(const GradientBucket& bucket, Communicator& communicator)>;

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
