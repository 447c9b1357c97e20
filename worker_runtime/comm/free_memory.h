// How much memory may still be taken here, so that a buffer which is too large is an error and not
// the death of the process or of others.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_FREE_MEMORY_H_
#define DDPRUN_WORKER_RUNTIME_COMM_FREE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ddp::internal {

struct FreeMemory {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX: the kernel does not tell
  std::string where;            // "on this machine", "in the cgroup /job7"
};

// The least of the kernel's MemAvailable and of what the limits of this process's memory cgroups,
// v1 or v2, leave: pages of files can be had, swap is not counted. `root` stands
// before /proc and /sys in tests.
FreeMemory AskFreeMemory(const std::string& root = "");

// ResourceExhausted when `bytes` are not free. `what` begins the message: "allocate a buffer".
// Others may take what is free now, so that this finds requests that cannot be, not narrow ones.
absl::Status CheckFreeMemory(uint64_t bytes, const std::string& what);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_FREE_MEMORY_H_
