// clone(2) for a child that is born in another cgroup.
#ifndef DDPRUN_LAUNCHER_PROCESS_CLONE_INTO_CGROUP_H_
#define DDPRUN_LAUNCHER_PROCESS_CLONE_INTO_CGROUP_H_

#include <sys/types.h>

#include <cstddef>

namespace ddprun::launcher {

// As clone(run, stack + stack_bytes, CLONE_VM | SIGCHLD, argument), and the child is in the cgroup
// of `directory` from its first instruction: moving it there later (cgroup.procs) would wait for an
// RCU grace period, milliseconds for each worker. -1 with errno set where this cannot be had:
// ENOSYS (before Linux 5.7, or a filter), EACCES, EBUSY, EOPNOTSUPP, ... REQUIRES: `stack` is
// aligned to 16 bytes and `stack_bytes` a multiple of 16.
pid_t CloneIntoCgroup(int directory, int (*run)(void*), void* stack, size_t stack_bytes,
                      void* argument);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_CLONE_INTO_CGROUP_H_
