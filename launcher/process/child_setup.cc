#include "launcher/process/child_setup.h"

#include <fcntl.h>
#include <sys/prctl.h>

#include <cerrno>
#include <csignal>

#include "process/raw_syscall.h"

namespace ddprun::launcher {
namespace {

constexpr int kFirstFdToClose = 3;

// Where the error pipe goes, next to stdio.
constexpr int kErrorPipe = 3;

DDPRUN_RAW int Fail(int error_pipe, const char* step, long error) {
  ChildFailure failure;
  failure.pid = static_cast<int32_t>(RawSyscall(SYS_getpid));
  failure.error = static_cast<int32_t>(-error);
  failure.step = step;
  // Sixteen bytes into a pipe: never partial (PIPE_BUF).
  while (RawSyscall(SYS_write, error_pipe, &failure, sizeof(failure)) == -EINTR) {
  }
  return 127;
}

// The steps return 0 or -errno.

// Puts plan.stdio on 0 to 2. A source among 0 to 2 would be overwritten by an earlier target, or
// keep its close-on-exec flag when it is its own target, so sources are moved up first.
DDPRUN_RAW long PlaceStdio(const ChildPlan& plan) {
  long sources[3];
  for (int fd = 0; fd < 3; ++fd) {
    sources[fd] = plan.stdio[fd];
    if (sources[fd] < 0 || sources[fd] >= kFirstFdToClose) continue;
    sources[fd] = RawSyscall(SYS_fcntl, sources[fd], F_DUPFD_CLOEXEC, kFirstFdToClose);
    if (sources[fd] < 0) return sources[fd];
  }
  for (int fd = 0; fd < 3; ++fd) {
    if (sources[fd] < 0) continue;
    const long result = RawSyscall(SYS_dup3, sources[fd], fd, 0);
    if (result < 0) return result;
  }
  return 0;
}

// Off the numbers that stdio, the error pipe and `other` are about to take.
DDPRUN_RAW long MoveOff(long fd, int other) {
  if (fd < 0 || (fd > kErrorPipe && fd != other)) return fd;
  return RawSyscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kRoundKeyFd + 1);
}

DDPRUN_RAW bool Place(long fd, int number) {
  if (fd == number) return RawSyscall(SYS_fcntl, fd, F_SETFD, 0) >= 0;
  return fd >= 0 && RawSyscall(SYS_dup3, fd, number, 0) >= 0;
}

DDPRUN_RAW long MoveErrorPipe(const ChildPlan& plan) {
  if (plan.error_pipe == kErrorPipe) return 0;
  return RawSyscall(SYS_dup3, plan.error_pipe, kErrorPipe, O_CLOEXEC);
}

// Closes all but stdio, what is inherited and the error pipe, which closes at exec; also what the
// agent's own starter left open. Now and not at exec: an exec may hang, and ports, pipes and the
// guardian's line to the agent must not stay open for as long.
DDPRUN_RAW long CloseOthers(const ChildPlan& plan, bool keeps_counters, bool keeps_key) {
  long result = RawSyscall(SYS_close_range, kErrorPipe + 1, kCountersFd - 1, 0);
  if (result == 0 && !keeps_counters) {
    result = RawSyscall(SYS_close_range, kCountersFd, kCountersFd, 0);
  }
  if (result == 0 && !keeps_key) result = RawSyscall(SYS_close_range, kRoundKeyFd, kRoundKeyFd, 0);
  if (result == 0) result = RawSyscall(SYS_close_range, kRoundKeyFd + 1, ~0U, 0);
  if (result != -ENOSYS && result != -EINVAL && result != -EPERM) return result;
  for (int fd = kErrorPipe + 1; fd <= plan.highest_fd; ++fd) {
    const bool is_kept = (fd == kCountersFd && keeps_counters) || (fd == kRoundKeyFd && keeps_key);
    if (!is_kept) RawSyscall(SYS_close, fd);
  }
  return 0;
}

DDPRUN_RAW long RestoreLimits(const ChildPlan& plan) {
  long result = RawSyscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &plan.baseline.open_files, nullptr);
  if (result == 0) {
    result = RawSyscall(SYS_prlimit64, 0, RLIMIT_CORE, &plan.baseline.core_size, nullptr);
  }
  if (result < 0 || plan.oom_score_adj_size == 0) return result;
  const long file =
      RawSyscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return file;
  const long written = RawSyscall(SYS_write, file, plan.oom_score_adj, plan.oom_score_adj_size);
  RawSyscall(SYS_close, file);
  return written < 0 ? written : 0;
}

// Dispositions before the mask: a handler of the agent must never run here.
DDPRUN_RAW long RestoreSignals(const ChildPlan& plan) {
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    KernelSigaction action;
    action.handler = reinterpret_cast<void*>(
        (plan.baseline.ignored_signals >> (signal - 1) & 1) != 0 ? SIG_IGN : SIG_DFL);
    action.flags = 0;
    action.restorer = nullptr;
    action.mask = 0;
    const long result = RawSyscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof(SignalBits));
    if (result < 0) return result;
  }
  return RawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, &plan.baseline.blocked_signals, nullptr,
                    sizeof(SignalBits));
}

// At Yama's ptrace_scope 1, as Debian and Ubuntu have it, a process may look into its descendants
// only: eu-stack, the agent's child, not into a worker, its sibling. The named process and all its
// descendants may from now on; the other workers of this job are among them, which their one user
// gives away nothing by. The kernel notes it for the thread group's leader until either of the two
// ends, so it outlives the exec; children of the worker do not inherit it. Without Yama it is
// EINVAL, and nobody forbids anything.
DDPRUN_RAW void LetAgentReadStack(const ChildPlan& plan) {
  RawSyscall(SYS_prctl, PR_SET_PTRACER, static_cast<long>(plan.parent), 0, 0, 0);
}

// Whether a signal waits that would end this child with a core dump, and the agent with it. The
// agent sends none to a child on its way; one from elsewhere that comes after this look, while the
// exec hangs even hours after, is not held off.
DDPRUN_RAW bool IsDumpPending(const ChildPlan& plan) {
  SignalBits pending = 0;
  RawSyscall(SYS_rt_sigpending, &pending, sizeof(pending));
  return (pending & kDumpingSignals & ~plan.baseline.ignored_signals) != 0;
}

}  // namespace

DDPRUN_RAW int RunChild(void* argument) {
  const ChildPlan& plan = *static_cast<const ChildPlan*>(argument);
  int error_pipe = plan.error_pipe;
  long result = RawSyscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (result < 0) return Fail(error_pipe, "prctl(PR_SET_PDEATHSIG)", result);
  // The agent may have died before the line above took effect.
  if (RawSyscall(SYS_getppid) != plan.parent) return 127;
  result = RawSyscall(SYS_setsid);
  if (result < 0) return Fail(error_pipe, "setsid", result);
  LetAgentReadStack(plan);
  const long counters = MoveOff(plan.counters, kRoundKeyFd);
  const long round_key = MoveOff(plan.round_key, kCountersFd);
  result = PlaceStdio(plan);
  if (result < 0) return Fail(error_pipe, "place stdin, stdout and stderr", result);
  result = MoveErrorPipe(plan);
  if (result < 0) return Fail(error_pipe, "place the error pipe", result);
  error_pipe = kErrorPipe;
  // Where the agent's limit is lower than the numbers the worker does without the page, and not
  // without the key.
  const bool keeps_counters = Place(counters, kCountersFd);
  const bool keeps_key = Place(round_key, kRoundKeyFd);
  if (plan.round_key >= 0 && !keeps_key) {
    return Fail(error_pipe, "hand on the round's key as descriptor 199 (ulimit -n)", -EMFILE);
  }
  result = CloseOthers(plan, keeps_counters, keeps_key);
  if (result < 0) return Fail(error_pipe, "close descriptors", result);
  result = RestoreLimits(plan);
  if (result < 0) return Fail(error_pipe, "restore limits", result);
  if (plan.cpu_mask_bytes > 0) {
    result = RawSyscall(SYS_sched_setaffinity, 0, plan.cpu_mask_bytes, plan.cpu_mask);
    if (result < 0) return Fail(error_pipe, "bind to CPUs (sched_setaffinity)", result);
  }
  if (IsDumpPending(plan)) return 128 + SIGQUIT;
  result = RestoreSignals(plan);
  if (result < 0) return Fail(error_pipe, "restore signals", result);
  result = RawSyscall(SYS_execve, plan.executable, plan.argv, plan.envp);
  return Fail(error_pipe, nullptr, result);
}

}  // namespace ddprun::launcher
