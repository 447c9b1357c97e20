#include "launcher/process/guardian_child.h"

#include <fcntl.h>
#include <sys/prctl.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "launcher/process/folder_note.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process_baseline.h"
#include "launcher/process/raw_syscall.h"
#include "launcher/process/session_table.h"

namespace ddprun::launcher {
namespace {

constexpr int kPipeFd = 3;
constexpr int kHighestFdWithoutCloseRange = 65535;

// Lets go of everything the agent had: a pipe of the agent's caller must close when the agent does,
// and a mount must not stay busy.
DDPRUN_RAW void Detach(int pipe) {
  const SignalBits all = ~SignalBits{0};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof(all));
  syscall(SYS_setsid);
  syscall(SYS_prctl, PR_SET_NAME, "ddprun-guard", 0, 0, 0);
  syscall(SYS_chdir, "/");
  if (pipe != kPipeFd) syscall(SYS_dup3, pipe, kPipeFd, O_CLOEXEC);
  if (syscall(SYS_close_range, kPipeFd + 1, ~0U, 0) != 0) {
    for (int fd = kPipeFd + 1; fd <= kHighestFdWithoutCloseRange; ++fd) syscall(SYS_close, fd);
  }
  for (int fd = 0; fd < kPipeFd; ++fd) syscall(SYS_close, fd);
  // The lowest free number is 0. Without /dev the three stay closed, and nothing here uses them.
  if (syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR) == 0) {
    syscall(SYS_dup3, 0, 1, 0);
    syscall(SYS_dup3, 0, 2, 0);
  }
}

DDPRUN_RAW void Pause(long milliseconds) {
  timespec pause;
  pause.tv_sec = milliseconds / 1000;
  pause.tv_nsec = milliseconds % 1000 * 1'000'000;
  syscall(SYS_nanosleep, &pause, nullptr);
}

// Nobody writes into the pipe: it closes when the agent is gone.
DDPRUN_RAW void AwaitEndOfAgent() {
  char byte;
  while (syscall(SYS_read, kPipeFd, &byte, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace

DDPRUN_RAW void RunGuardian(int pipe, const GuardianOrders& orders) {
  Detach(pipe);
  AwaitEndOfAgent();
  const bool has_cgroup = orders.cgroup_path != nullptr;
  LeftoverQuery query;
  query.mark = orders.mark;
  query.sessions = orders.sessions;
  if (has_cgroup) query.cgroup = orders.cgroup_name;
  // Two empty walks 20 ms apart: during exec a process shows no environment for a moment. A process
  // that sleeps in the kernel is asked again for ten minutes, ever more rarely.
  constexpr long kEmptyPause = 20;
  constexpr long kLongestPause = 1000;
  constexpr long kGiveUp = 600'000;
  long pause = 2;
  int empty_walks = 0;
  for (long waited = 0; waited < kGiveUp; waited += pause) {
    // By name and not through a descriptor from before the fork, which would keep the mount busy.
    if (has_cgroup) KillCgroup(orders.cgroup_kill_path);
    empty_walks = SignalLeftovers(query, SIGKILL) == 0 ? empty_walks + 1 : 0;
    if (empty_walks == 1) {
      Pause(kEmptyPause);
      continue;
    }
    // It cannot be removed while a process dies in it.
    if (empty_walks > 1 && (!has_cgroup || RemoveCgroup(orders.cgroup_path))) break;
    // Only what a walk has not met: a leader that died with the agent says nothing of its session.
    orders.sessions->RemoveEnded();
    Pause(pause);
    pause = pause * 2 < kLongestPause ? pause * 2 : kLongestPause;
  }
  // Now that no worker writes into it.
  orders.folder->RemoveEmptyFolders();
  for (;;) syscall(SYS_exit_group, 0);
}

}  // namespace ddprun::launcher
