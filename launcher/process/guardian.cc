#include "launcher/process/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <new>
#include <utility>

#include "launcher/process/leftovers.h"
#include "launcher/process/process.h"
#include "launcher/process/process_baseline.h"
#include "process/raw_syscall.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr Duration kRestartPause = std::chrono::seconds(1);
// A killed guardian ends at once, unless the kernel holds it too.
constexpr Duration kLastReap = std::chrono::seconds(1);

// For the guardian itself. Plain pointers, because it may not allocate.
struct Orders {
  LeftoverQuery leftovers;
  const FolderNote* folder = nullptr;
  const FileNote* secret = nullptr;
  const char* cgroup_path = nullptr;  // null: the job has no cgroup
  SignalNote* signals = nullptr;
};

constexpr int kPipeFd = 3;
constexpr int kHighestFdWithoutCloseRange = 65535;

// Lets go of everything the agent had: a pipe of the agent's caller must close when the agent does,
// and a mount must not stay busy.
DDPRUN_RAW void Detach(int pipe) {
  const SignalBits all = ~SignalBits{0};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof(all));
  syscall(SYS_setsid);
  // What came before was for the agent's process group, in which no worker is: it is not noted.
  const timespec none = {0, 0};
  while (syscall(SYS_rt_sigtimedwait, &all, nullptr, &none, sizeof(all)) > 0) {
  }
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
DDPRUN_RAW void AwaitEndOfAgent(SignalNote& signals) {
  const SignalBits all = ~SignalBits{0};
  pollfd waits[2];
  waits[0].fd = kPipeFd;
  waits[0].events = POLLIN;
  // Without it (-1) poll passes over the second.
  waits[1].fd =
      static_cast<int>(syscall(SYS_signalfd4, -1, &all, sizeof(all), SFD_CLOEXEC | SFD_NONBLOCK));
  waits[1].events = POLLIN;
  for (;;) {
    waits[0].revents = waits[1].revents = 0;
    const long count = syscall(SYS_ppoll, waits, 2, nullptr, nullptr, 0);
    if (count < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    signalfd_siginfo info;
    while (waits[1].fd >= 0 && syscall(SYS_read, waits[1].fd, &info, sizeof(info)) > 0) {
      timespec now;
      syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
      signals.Take(info.ssi_signo, int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
    }
  }
}

// Runs in the forked child, which may come from a process with threads: async-signal-safe
// throughout. `pipe` is the read end.
[[noreturn]] DDPRUN_RAW void RunGuardian(int pipe, const Orders& orders) {
  Detach(pipe);
  AwaitEndOfAgent(*orders.signals);
  const bool has_cgroup = orders.cgroup_path != nullptr;
  // Two empty walks 20 ms apart: during exec a process shows no environment for a moment. A process
  // that sleeps in the kernel is asked again for ten minutes, ever more rarely.
  constexpr long kEmptyPause = 20;
  constexpr long kLongestPause = 1000;
  constexpr long kGiveUp = 600'000;
  long pause = 2;
  int empty_walks = 0;
  for (long waited = 0; waited < kGiveUp; waited += pause) {
    // By name and not through a descriptor from before the fork, which would keep the mount busy.
    if (has_cgroup) KillCgroup(orders.cgroup_path);
    empty_walks = SignalLeftovers(orders.leftovers, SIGKILL) == 0 ? empty_walks + 1 : 0;
    if (empty_walks == 1) {
      Pause(kEmptyPause);
      continue;
    }
    // It cannot be removed while a process dies in it.
    if (empty_walks > 1 && (!has_cgroup || RemoveCgroup(orders.cgroup_path))) break;
    // Only what a walk has not met: a leader that died with the agent says nothing of its session.
    orders.leftovers.sessions->RemoveEnded();
    Pause(pause);
    pause = pause * 2 < kLongestPause ? pause * 2 : kLongestPause;
  }
  // Now that no worker writes into it.
  orders.folder->RemoveEmptyFolders();
  orders.secret->Remove();  // its file system may not answer
  for (;;) syscall(SYS_exit_group, 0);
}

}  // namespace

void Guardian::Unmap::operator()(Memory* memory) const {
  DDP_CHECK(munmap(memory, sizeof(*memory)) == 0);
}

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start(const std::string& job_mark) {
  DDP_CHECK(!job_mark.empty());
  void* pages =
      mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return absl::ErrnoToStatus(errno, "guardian: mmap");
  std::unique_ptr<Memory, Unmap> memory(new (pages) Memory());
  std::unique_ptr<Guardian> guardian(new Guardian(job_mark, std::move(memory)));
  if (absl::Status status = guardian->Fork(); !status.ok()) return status;
  return guardian;
}

Guardian::Guardian(const std::string& job_mark, std::unique_ptr<Memory, Unmap> memory)
    : mark_(job_mark), memory_(std::move(memory)), cgroup_(JobCgroup::Make(mark_)) {}

Guardian::~Guardian() {
  const bool is_removed = cgroup_ == nullptr || cgroup_->Remove();
  // Its pipe closes now, which leaves the rest to it.
  if (pid_ != 0 && (!is_removed || !memory_->sessions.is_empty())) return;
  if (!is_removed) {  // it is dead itself: one last try in its place
    cgroup_->Kill();
    cgroup_->Remove();
  }
  End();
}

absl::Status Guardian::Fork() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "guardian: pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  Orders orders{.leftovers = {.mark = mark_.c_str(), .sessions = &memory_->sessions},
                .folder = &memory_->folder,
                .secret = &memory_->secret,
                .signals = &memory_->signals};
  if (cgroup_ != nullptr) {
    orders.leftovers.cgroup = cgroup_->name().c_str();
    orders.cgroup_path = cgroup_->path().c_str();
  }
  // Raw, without an exit signal and without the handlers that libraries hang on fork(): a restart
  // happens in a process with threads.
  const long pid = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) RunGuardian(read_end.get(), orders);
  if (pid < 0) {
    const std::string what = "start the process that kills workers when ddprun dies: ";
    if (errno == EAGAIN) return absl::ResourceExhaustedError(what + kNoThreadText);
    return absl::ErrnoToStatus(errno, what + "clone");
  }
  pid_ = static_cast<pid_t>(pid);
  write_end_ = std::move(write_end);
  born_ = SteadyNow();
  return absl::OkStatus();
}

void Guardian::Watch(boost::asio::io_context& io,
                     std::function<void(const std::string&)> on_restart) {
  DDP_CHECK(!on_restart_);
  on_restart_ = std::move(on_restart);
  watcher_.emplace(io);
  AwaitDeath();
}

// The write end of a pipe nobody reads any more reports an error: works without pidfd.
void Guardian::AwaitDeath() {
  UniqueFd copy(fcntl(write_end_.get(), F_DUPFD_CLOEXEC, 3));
  boost::system::error_code error;
  if (copy.is_open()) watcher_->pipe.assign(copy.get(), error);
  if (!copy.is_open() || error) {
    return RestartLater("guardian cannot be watched; trying again in 1 s");
  }
  copy.Release();
  watcher_->pipe.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                            [this](boost::system::error_code failure) {
                              if (failure) return;
                              if (SteadyNow() - born_ < kRestartPause) {
                                return RestartLater("guardian died at once; trying again in 1 s");
                              }
                              End();
                              Restart();
                            });
}

void Guardian::Restart() {
  const pid_t old = std::exchange(dead_pid_, 0);
  if (absl::Status status = Fork(); !status.ok()) {
    return RestartLater(std::string(status.message()) + "; trying again in 1 s");
  }
  AwaitDeath();
  on_restart_("guardian (pid " + std::to_string(old) + ") died; started another (pid " +
              std::to_string(pid_) + ")");
}

void Guardian::RestartLater(const std::string& why) {
  End();
  watcher_->timer.expires_after(kRestartPause);
  watcher_->timer.async_wait([this](boost::system::error_code failure) {
    if (!failure) Restart();
  });
  on_restart_(why);
}

void Guardian::End() {
  boost::system::error_code ignored;
  if (watcher_) watcher_->pipe.close(ignored);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);  // not reaped yet, so the number is its own
    ReapChild(pid_, SteadyNow() + kLastReap);
    dead_pid_ = std::exchange(pid_, 0);
  }
  write_end_.Reset();
}

}  // namespace ddprun::launcher
