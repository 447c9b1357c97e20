#include "launcher/dump/tool_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "launcher/process/helper_pids.h"
#include "process/raw_syscall.h"
#include "process/signal_bits.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxError = 4096;
// A killed process ends at once, unless it hangs in the kernel: then it is left behind.
constexpr std::chrono::milliseconds kPatienceAfterKill{1000};

struct ToolPlan {
  char* const* argv;
  char* const* envp;
  int null, out, err;  // all above 2
  pid_t parent;
};

// The child's side. It has memory of its own, but of a process with threads: system calls only.
DDPRUN_RAW void BecomeTool(const ToolPlan& plan) {
  RawSyscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (RawSyscall(SYS_getppid) != plan.parent) return;
  RawSyscall(SYS_setsid);
  if (RawSyscall(SYS_dup3, plan.null, STDIN_FILENO, 0) < 0 ||
      RawSyscall(SYS_dup3, plan.out, STDOUT_FILENO, 0) < 0 ||
      RawSyscall(SYS_dup3, plan.err, STDERR_FILENO, 0) < 0) {
    return;
  }
  const long score =
      RawSyscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) RawSyscall(SYS_write, score, "1000", 4);
  // What is ours closes at the exec; what our starter left open does so here, from Linux 5.9 on.
  RawSyscall(SYS_close_range, 3, ~0U, 0);
  KernelSigaction action;
  action.handler = reinterpret_cast<void*>(SIG_DFL);
  action.flags = 0;
  action.restorer = nullptr;
  action.mask = 0;
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    RawSyscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof(SignalBits));
  }
  SignalBits none = 0;
  RawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof(none));
  RawSyscall(SYS_execve, plan.argv[0], plan.argv, plan.envp);
}

// Raw, without the handlers that libraries hang on fork(). `pidfd` stays -1 before Linux 5.2.
DDPRUN_RAW pid_t StartTool(const ToolPlan& plan, int& pidfd) {
  const long pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &pidfd, nullptr, nullptr);
  if (pid != 0) return static_cast<pid_t>(pid);
  BecomeTool(plan);
  for (;;) RawSyscall(SYS_exit_group, 127);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  UniqueFd read_end, write_end;
};

// Above 2: the child puts them there.
bool OpenPipe(Pipe& made) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  made.read_end.Reset(ends[0]);
  made.write_end.Reset(ends[1]);
  if (made.write_end.get() <= STDERR_FILENO) {
    made.write_end.Reset(fcntl(made.write_end.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  }
  fcntl(made.read_end.get(), F_SETFL, O_NONBLOCK);
  return made.write_end.is_open();
}

// Takes what is there, up to `limit`; what is more is passed over. False: the other end is closed.
bool Take(int fd, size_t limit, std::string& text) {
  char buffer[16 * 1024];
  // More than a pipe holds, but not for as long as somebody writes.
  for (int reads = 0; reads < 32; ++reads) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    text.append(buffer, std::min(static_cast<size_t>(count), limit - text.size()));
  }
  return true;
}

// Reads until both streams are closed, the tool has ended, or there is no more time or room.
void Follow(const Pipe& out, const Pipe& err, int pidfd, int cancel_fd, TimePoint deadline,
            const Clock& clock, ToolRun& run) {
  pollfd polled[] = {{out.read_end.get(), POLLIN, 0},
                     {err.read_end.get(), POLLIN, 0},
                     {pidfd, POLLIN, 0},
                     {cancel_fd, POLLIN, 0}};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    const int ready = poll(polled, 4, PollTimeout(deadline, clock));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && clock.Now() < deadline) continue;
    run.is_late = ready <= 0 || polled[3].revents != 0;
    if (run.is_late) return;
    // Looked at first: what it wrote before its end is there now.
    const bool has_ended = polled[2].revents != 0;
    if (polled[0].fd >= 0 && !Take(polled[0].fd, kMaxToolOutput, run.out)) polled[0].fd = -1;
    if (polled[1].fd >= 0 && !Take(polled[1].fd, kMaxError, run.err)) polled[1].fd = -1;
    run.is_cut = run.out.size() == kMaxToolOutput;
    // What it has started may hold its stdout open for ever.
    if (has_ended || run.is_cut) return;
    if (clock.Now() >= deadline) run.is_late = true;
    if (run.is_late) return;
  }
}

// True: it has ended, and `end` says how. `options` may be WNOWAIT.
bool LookAtEnd(pid_t pid, int options, ExitStatus& end) {
  siginfo_t info{};
  const int result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | options);
  if (result < 0 && errno == ECHILD) {
    end.is_unknown = true;
    return true;
  }
  if (result != 0 || info.si_pid != pid) return false;
  end = DecodeWaitInfo(info.si_code, info.si_status);
  return true;
}

bool AwaitEnd(pid_t pid, int pidfd, int cancel_fd, TimePoint deadline, const Clock& clock,
              ExitStatus& end) {
  for (;;) {
    if (LookAtEnd(pid, WNOWAIT, end)) return true;
    if (clock.Now() >= deadline) return false;
    pollfd polled[] = {{pidfd, POLLIN, 0}, {cancel_fd, POLLIN, 0}};
    poll(polled, 2, pidfd >= 0 ? PollTimeout(deadline, clock) : 1);
    if (polled[1].revents != 0) return false;
  }
}

}  // namespace

ToolRun RunTool(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                TimePoint deadline, const Clock& clock, int cancel_fd) {
  ToolRun run;
  Pipe out, err;
  const UniqueFd null_low(open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd null(fcntl(null_low.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!null.is_open() || !OpenPipe(out) || !OpenPipe(err)) {
    run.start_error = absl::StrCat("pipe: ", std::strerror(errno));
    return run;
  }
  const std::vector<char*> words = Pointers(argv);
  const std::vector<char*> variables = Pointers(environment);
  int pidfd_number = -1;
  std::unique_lock<std::mutex> held = HoldHelpers();
  const pid_t pid = StartTool({.argv = words.data(),
                               .envp = variables.data(),
                               .null = null.get(),
                               .out = out.write_end.get(),
                               .err = err.write_end.get(),
                               .parent = getpid()},
                              pidfd_number);
  if (pid < 0) {
    run.start_error = absl::StrCat("clone: ", std::strerror(errno));
    return run;
  }
  AddHelper(pid);
  held.unlock();
  const UniqueFd pidfd(pidfd_number);
  out.write_end.Reset();
  err.write_end.Reset();
  Follow(out, err, pidfd.get(), cancel_fd, deadline, clock, run);
  if (!run.is_late && !run.is_cut) {
    run.has_ended = AwaitEnd(pid, pidfd.get(), cancel_fd, deadline, clock, run.end);
    run.is_late = !run.has_ended;
  }
  if (!run.has_ended) kill(pid, SIGKILL);
  // A zombie's number is nobody else's, and neither is its group's: nothing of it stays.
  if (!run.end.is_unknown) kill(-pid, SIGKILL);
  if (!run.has_ended) {
    run.has_ended =
        AwaitEnd(pid, pidfd.get(), -1, clock.Now() + kPatienceAfterKill, clock, run.end);
  }
  if (run.has_ended) LookAtEnd(pid, 0, run.end);
  RemoveHelper(pid, run.is_late || run.is_cut);
  return run;
}

}  // namespace ddprun::launcher
