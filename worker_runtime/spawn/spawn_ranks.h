// The caller's side of a Spawn: the store, the processes, their ends, and the verdict on them.
#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_RANKS_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_RANKS_H_

#include <chrono>
#include <functional>

#include "absl/status/status.h"

namespace ddp::internal {

// Runs the processes of the `call`th Spawn and waits for all (ddp/spawn.h). `grace` is what those
// that are stopped have from SIGTERM to SIGKILL. No one is left when it returns.
absl::Status SpawnRanks(int ranks, int call, std::chrono::milliseconds grace);

// ddp::Spawn with another grace than its 30 s.
absl::Status SpawnWithGrace(int ranks, const std::function<int(int rank)>& fn,
                            std::chrono::milliseconds grace);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_RANKS_H_
