// Ranks of the calling program without a launcher, on one machine.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_SPAWN_H_
#define DDPRUN_WORKER_RUNTIME_DDP_SPAWN_H_

#include <functional>

#include "absl/status/status.h"

namespace ddp {

inline constexpr int kMaxSpawnRanks = 4096;

// Runs fn(0) to fn(ranks - 1), each in a process of its own, and waits for all of them. In each,
// ProcessGroup::FromEnv() forms the group of these ranks.
//
// Each process executes this program anew (/proc/self/exe, the same arguments and environment), so
// it runs what stands before this call too (a log that is truncated there, a port that is bound, is
// so in each rank), comes to the same call, runs fn there and exits with what it returns: the call
// never returns in it. As with std::exit(), which fn may call, objects of static storage are
// destroyed and those on the stack are not; a value outside of 0 to 255 counts as 255. Every rank
// must come to the call: whether to make it is no matter of RANK, which they have, but of an
// argument, say. Before it nothing may fork and go on, or close descriptors that it did not open:
// FailedPrecondition there. Where a program calls Spawn several times, it must come to these calls
// in the same order in every process: in those of a later call the earlier ones return Ok at once,
// whatever came of them, so that a call which failed is not to be tried again. Spawn within fn is
// FailedPrecondition.
//
// A rank may return without a group if the other ranks form none either. Where others do, in
// ProcessGroup::FromEnv(), a rank that returns 0 before that group has formed makes them fail
// within seconds: Aborted, with its number.
//
// The first rank that fails is the result, Aborted, and says why: "rank 2 of 4 failed: exit code
// 7", "rank 1 of 4 was killed by SIGSEGV (signal 11)", "rank 0 of 4 ended by an exception: ...". A
// rank that failed because its group lost another rank is named only where no other one failed. The
// rest get SIGTERM then and, 30 s later, SIGKILL. InvalidArgument: ranks not in 1 to
// kMaxSpawnRanks, an empty fn. ResourceExhausted: this machine could not start them all, and no one
// is left. Unavailable: /proc cannot be read. Unimplemented: a kernel before 5.4.
//
// The ranks die with the caller, whatever ends it; what they have started themselves does not. The
// call waits for its own processes alone and changes neither signals nor descriptors of the caller.
// They have the caller's process group, the calling thread's blocked signals and the descriptors
// that are not close-on-exec. Where SIGCHLD is ignored, or something else in the process waits for
// all children, the kernel does not tell how a rank ended: what fn returned or threw is known all
// the same, an end by a signal or by fn's own exit() is a failure without a reason. Under a
// launcher the ranks are a job of their own: RANK, WORLD_SIZE, MASTER_ADDR and the like are this
// call's.
//
// The calling process serves the ranks' store on a port of 127.0.0.1. Needs Linux 5.4 and /proc.
absl::Status Spawn(int ranks, std::function<int(int rank)> fn);

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_SPAWN_H_
