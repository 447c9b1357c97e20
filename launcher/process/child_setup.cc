#include "launcher/process/child_setup.h"

#include <fcntl.h>
#include <sys/prctl.h>

#include <cerrno>
#include <csignal>

#include "launcher/process/raw_syscall.h"

namespace ddprun::launcher {
namespace {

constexpr int kFirstFdToClose = 3;
constexpr unsigned kCloseRangeCloexec = 4;  // CLOSE_RANGE_CLOEXEC, Linux 5.11
constexpr int kLastSignal = 64;

struct KernelSigaction {
  void* handler;
  unsigned long flags;
  void* restorer;
  SignalBits mask;
};

DDPRUN_RAW int Fail(const ChildPlan& plan, ChildStep step) {
  ChildFailure failure;
  failure.step = step;
  failure.error = errno;
  // Eight bytes into an empty pipe: never partial. The parent tells a lost write from a success by
  // the exit that follows it.
  while (syscall(SYS_write, plan.error_pipe, &failure, sizeof(failure)) < 0 && errno == EINTR) {
  }
  return 127;
}

// Puts plan.stdio on 0 to 2. A source among 0 to 2 would be overwritten by an earlier target, or
// keep its close-on-exec flag when it is its own target, so sources are moved up first.
DDPRUN_RAW bool PlaceStdio(const ChildPlan& plan) {
  int sources[3];
  for (int fd = 0; fd < 3; ++fd) {
    sources[fd] = plan.stdio[fd];
    if (sources[fd] < 0 || sources[fd] >= kFirstFdToClose) continue;
    sources[fd] =
        static_cast<int>(syscall(SYS_fcntl, sources[fd], F_DUPFD_CLOEXEC, kFirstFdToClose));
    if (sources[fd] < 0) return false;
  }
  for (int fd = 0; fd < 3; ++fd) {
    if (sources[fd] >= 0 && syscall(SYS_dup3, sources[fd], fd, 0) < 0) return false;
  }
  return true;
}

// Everything from 3 up closes at exec, also what the agent's own starter left open.
DDPRUN_RAW bool CloseOnExecFromThree(const ChildPlan& plan) {
  if (syscall(SYS_close_range, kFirstFdToClose, ~0U, kCloseRangeCloexec) == 0) return true;
  if (errno != ENOSYS && errno != EINVAL && errno != EPERM) return false;
  for (int fd = kFirstFdToClose; fd <= plan.highest_fd; ++fd) {
    if (syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC) < 0 && errno != EBADF) return false;
  }
  return true;
}

DDPRUN_RAW bool RestoreLimits(const ChildPlan& plan) {
  if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &plan.open_files, nullptr) != 0) return false;
  if (plan.oom_score_adj_size == 0) return true;
  const long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const long written = syscall(SYS_write, file, plan.oom_score_adj, plan.oom_score_adj_size);
  syscall(SYS_close, file);
  return written == static_cast<long>(plan.oom_score_adj_size);
}

// Dispositions before the mask: a handler of the agent must never run here.
DDPRUN_RAW bool RestoreSignals(const ChildPlan& plan) {
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    KernelSigaction action;
    action.handler = reinterpret_cast<void*>(
        (plan.ignored_signals >> (signal - 1) & 1) != 0 ? SIG_IGN : SIG_DFL);
    action.flags = 0;
    action.restorer = nullptr;
    action.mask = 0;
    if (syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof(SignalBits)) != 0) return false;
  }
  return syscall(SYS_rt_sigprocmask, SIG_SETMASK, &plan.blocked_signals, nullptr,
                 sizeof(SignalBits)) == 0;
}

}  // namespace

DDPRUN_RAW int RunChild(void* argument) {
  const ChildPlan& plan = *static_cast<const ChildPlan*>(argument);
  if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
    return Fail(plan, ChildStep::kPrctl);
  }
  // The agent may have died before the line above took effect.
  if (syscall(SYS_getppid) != plan.parent) return 127;
  if (syscall(SYS_setsid) < 0) return Fail(plan, ChildStep::kSetsid);
  if (!PlaceStdio(plan)) return Fail(plan, ChildStep::kDup);
  if (!CloseOnExecFromThree(plan)) return Fail(plan, ChildStep::kCloseOnExec);
  if (!RestoreLimits(plan)) return Fail(plan, ChildStep::kLimits);
  if (!RestoreSignals(plan)) return Fail(plan, ChildStep::kSignals);
  syscall(SYS_execve, plan.executable, plan.argv, plan.envp);
  return Fail(plan, ChildStep::kExec);
}

}  // namespace ddprun::launcher
