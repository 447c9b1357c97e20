// The caller's side of a Spawn: the store, the processes, their ends, and the verdict on them.
#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_RANKS_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_RANKS_H_

#include "absl/status/status.h"

namespace ddp::internal {

// Runs the processes of the `call`th Spawn and waits for all (ddp/spawn.h). No one is left when it
// returns.
absl::Status SpawnRanks(int ranks, int call);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_RANKS_H_
