// The child's side of a spawn: from clone() to exec(), in the agent's memory and beside it.
//
// Nothing of RunChild may allocate, lock, log or call into any library: even errno is the agent's.
// Everything it reads was prepared by spawn.cc before the clone.
#ifndef DDPRUN_LAUNCHER_PROCESS_CHILD_SETUP_H_
#define DDPRUN_LAUNCHER_PROCESS_CHILD_SETUP_H_

#include <sched.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "launcher/process/process_baseline.h"

namespace ddprun::launcher {

// What a child writes to the error pipe when a step fails.
struct ChildFailure {
  int32_t pid;
  int32_t error;
  const char* step;  // in words, in the memory that it shares with the agent; null: the exec
};

// Where a worker finds the page in which it tells of itself (worker_runtime/counters_page.h): a
// number that no shell and no program takes by itself.
inline constexpr int kCountersFd = 198;
// Where it finds the round's key (worker_runtime/round_key.h), likewise.
inline constexpr int kRoundKeyFd = 199;

struct ChildPlan {
  const char* executable = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  int stdio[3] = {-1, -1, -1};  // what becomes 0 to 2; -1 keeps the agent's
  int counters = -1;            // what becomes kCountersFd; -1: nothing
  int round_key = -1;           // what becomes kRoundKeyFd; -1: nothing
  int error_pipe = -1;          // write end, close-on-exec
  int highest_fd = -1;          // for kernels without close_range: close up to here
  pid_t parent = 0;
  ProcessBaseline baseline{};
  char oom_score_adj[8] = {};  // decimal, with its length; 0 = leave
  size_t oom_score_adj_size = 0;
  const cpu_set_t* cpu_mask = nullptr;  // as sched_setaffinity has it; 0 bytes = leave
  size_t cpu_mask_bytes = 0;
};

// Entry point for clone(). `plan` is a ChildPlan. Returns the child's exit code, after a failure.
int RunChild(void* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_CHILD_SETUP_H_
