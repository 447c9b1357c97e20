// Ranks of the calling program without a launcher, on one machine.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_SPAWN_H_
#define DDPRUN_WORKER_RUNTIME_DDP_SPAWN_H_

#include <functional>

#include "absl/status/status.h"

namespace ddp {

inline constexpr int kMaxSpawnRanks = 4096;

// Runs fn(0) to fn(ranks - 1), each in its own process, and waits for all of them. In each,
// ProcessGroup::FromEnv() forms the group of these ranks.
//
// Each process executes this program again (/proc/self/exe, the same arguments and environment). So
// it also runs the code before this call: each rank truncates a log or binds a port that this code
// does. It then comes to the same call, runs fn there and exits with the value of fn. The call
// never returns in it. As with std::exit(), which fn may call, static objects are destroyed, and
// those on the stack are not. A value outside of 0 to 255 counts as 255.
//
// Every rank must come to the call. So decide about the call by an argument, for example, and not
// by RANK, which the ranks have. Code before the call must not fork and continue, or close
// descriptors that it did not open: FailedPrecondition. If a program calls Spawn several times,
// every process must come to these calls in the same order. In the ranks of a later call the
// earlier calls return Ok at once, whatever their result was. So do not retry a call that failed.
// Spawn within fn is FailedPrecondition.
//
// A rank may return without a group if the other ranks form none either. If others form one in
// ProcessGroup::FromEnv(), a rank that returns 0 before makes them fail within seconds: Aborted,
// with its number.
//
// The result is that of the first rank that fails: Aborted, with the reason. Examples are "rank 2
// of 4 failed: exit code 7" and "rank 1 of 4 was killed by SIGSEGV (signal 11)". After an exception
// it is "rank 0 of 4 ended by an exception: ...". A rank that failed because its group lost another
// rank is named only if no other rank failed. The call then sends SIGTERM to the rest and, 30 s
// later, SIGKILL. Other errors:
// - InvalidArgument: ranks is not in 1 to kMaxSpawnRanks, or fn is empty.
// - ResourceExhausted: this machine could not start all ranks. None is left.
// - Unavailable: /proc cannot be read.
// - Unimplemented: the kernel is older than 5.4.
//
// The ranks die with the caller, whatever ends it. Processes that the ranks have started do not.
// The call waits only for its own processes, and changes neither signals nor descriptors of the
// caller. The ranks have the caller's process group, the calling thread's blocked signals and the
// descriptors that are not close-on-exec.
//
// If SIGCHLD is ignored, or other code in the process waits for all children, the kernel does not
// report how a rank ended. The call still gets what fn returned or threw. An end by a signal or by
// fn's own exit() is then a failure without a reason. Under a launcher the ranks are a separate
// job: RANK, WORLD_SIZE, MASTER_ADDR and the like are this call's.
//
// The calling process serves the ranks' store on a port of 127.0.0.1. Needs Linux 5.4 and /proc.
absl::Status Spawn(int ranks, std::function<int(int rank)> fn);

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_SPAWN_H_
