// How a program reduces gradients in its own way: compressed, by other collectives, or not at all.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp {

// Gradients that are reduced together. All of them are complete.
struct GradientBucket {
  void* data = nullptr;
  // Elements, including those between two gradients: zeros, or what a hook has left there.
  size_t count = 0;
  DType dtype = DType::kFloat32;
  int index = 0;  // from 0, in the order of the calls, the same on all ranks
  bool is_last = false;
  Stream stream = nullptr;  // CUDA: the stream that computed the gradients
};

// Called for each bucket of a synchronised pass, as soon as the bucket and those before it are
// complete. It is also called in a group of one. It runs on the thread that announces gradients. If
// gradients may be missing, it runs only in Finish(). On a rank that has joined, it runs in
// JoinGuard::Wait(), with zeros.
//
// The hook starts the work and returns it. The result is what the bucket holds after the work's
// Wait() (CPU) or WaitOn() (CUDA). Nothing divides it afterwards. Every rank makes the same calls
// to the communicator. For more than one operation, return a Work of your own that does the rest in
// its wait. What the hook refers to must outlive the DistributedDataParallel. An exception from it
// ends the pass and the group.
using CommHook =
    std::function<std::unique_ptr<Work>(const GradientBucket& bucket, Communicator& communicator)>;

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
