#include "process/clone.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "rendezvous/base/check.h"

#if defined(__SANITIZE_THREAD__)
// The other name of clone(2)'s wrapper in glibc. The thread sanitizer replaces the usual one and
// takes every child for a fork: then it lets the parent, whose memory it is, start no thread any
// more ("starting new threads after multi-threaded fork") and stops looking at this one.
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);
constexpr auto kClone = __clone;
#else
constexpr auto kClone = clone;
#endif

namespace ddprun {

AllSignalsBlocked::AllSignalsBlocked() {
  const SignalBits all = ~SignalBits{0};
  DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof(all)) == 0);
}

AllSignalsBlocked::~AllSignalsBlocked() {
  DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(before_)) == 0);
}

pid_t CloneSharingMemory(int (*run)(void*), void* argument, char* stack, int flags, int* pidfd) {
  // Grows down on every machine we build for.
  const pid_t pid =
      kClone(run, stack + kChildStackBytes, CLONE_VM | SIGCHLD | flags, argument, pidfd);
  return pid < 0 ? -errno : pid;
}

}  // namespace ddprun
