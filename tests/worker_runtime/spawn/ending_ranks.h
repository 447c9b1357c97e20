// Ranks of spawn_program whose ends follow from each other.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_SPAWN_ENDING_RANKS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_SPAWN_ENDING_RANKS_H_

#include "absl/status/status.h"

namespace ddp::testing {

// A rank that leaves its group by an exit code; the others fail because of that.
int LeaveGroup(int rank);
// The same by one that takes its time: it ends when the others have failed.
int LeaveGroupLate(int rank);
// As above, with a rank that leaves no note of why it failed. It ends before the others, which
// leave theirs although they are told to end.
int LeaveWithoutNote(int rank);

// Spawns two ranks. Rank 1 stops itself, and rank 0 fails when the caller has seen that.
absl::Status SpawnStoppedRank();

}  // namespace ddp::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_SPAWN_ENDING_RANKS_H_
