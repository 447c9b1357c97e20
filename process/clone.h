// clone(2) for a child that runs in its parent's memory until its exec.
#ifndef DDPRUN_PROCESS_CLONE_H_
#define DDPRUN_PROCESS_CLONE_H_

#include <sys/types.h>

#include <cstddef>

#include "process/signal_bits.h"

namespace ddprun {

// Blocks every signal of this thread while it lives: a handler that ran in the child would run on
// the parent's memory.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked();
  ~AllSignalsBlocked();
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

  SignalBits before() const { return before_; }  // the thread's own mask

 private:
  SignalBits before_ = 0;
};

// What `run` needs of a stack when it makes a few system calls and no library call: its deepest
// frame is below 1 KiB.
inline constexpr size_t kChildStackBytes = 32 * 1024;

// Starts a child that shares this process's memory, runs `run(argument)` on `stack` (of
// kChildStackBytes, aligned to 16), and exits with what that returns. `flags` are added,
// CLONE_VFORK for one; with CLONE_PIDFD `pidfd` takes the descriptor. Returns the pid, or -errno.
// REQUIRES: an AllSignalsBlocked lives in this thread.
pid_t CloneSharingMemory(int (*run)(void*), void* argument, char* stack, int flags,
                         int* pidfd = nullptr);

}  // namespace ddprun

#endif  // DDPRUN_PROCESS_CLONE_H_
