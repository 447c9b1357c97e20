#include "launcher/process/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>

#include "launcher/process/helper_pids.h"
#include "launcher/process/process_baseline.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// The first ended child of those meant, left a zombie. No pid: none has ended, or (`none_left`)
// there is no such child.
struct Ended {
  pid_t pid = 0;
  ExitStatus status{};
  bool none_left = false;
};

Ended LookAtEnded(idtype_t type, pid_t pid) {
  siginfo_t info{};
  if (waitid(type, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    DDP_CHECK(errno == ECHILD);
    return Ended{.none_left = true};
  }
  if (info.si_pid == 0) return Ended{};
  return Ended{.pid = info.si_pid, .status = DecodeWaitInfo(info.si_code, info.si_status)};
}

}  // namespace

bool ReapChild(pid_t pid, TimePoint deadline) {
  constexpr long kLongestPauseNs = 1'000'000;
  // A killed process needs some 0.1 ms for its end.
  for (timespec pause{.tv_sec = 0, .tv_nsec = 50'000};;) {
    siginfo_t info{};
    // __WALL: the guardian sends no signal at its end, which makes it a child of the other kind.
    const int result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | __WALL);
    DDP_CHECK(result == 0 || errno == ECHILD);
    if (info.si_pid == pid || result != 0) return true;
    if (SteadyNow() >= deadline) return false;
    nanosleep(&pause, nullptr);
    pause.tv_nsec = std::min(2 * pause.tv_nsec, kLongestPauseNs);
  }
}

pid_t FindAncestor(const std::function<bool(pid_t, std::string_view)>& is_it, pid_t from) {
  for (pid_t pid = from; pid > 1;) {
    // "PID (NAME) STATE PARENT ...", where NAME may hold anything.
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char text[512] = {};
    const bool is_read = file.is_open() && read(file.get(), text, sizeof(text) - 1) > 0;
    const char* const name = is_read ? std::strchr(text, '(') : nullptr;
    const char* const end = is_read ? std::strrchr(text, ')') : nullptr;
    const bool is_known = name != nullptr && end > name;
    if (is_it(pid, is_known ? std::string_view(name + 1, end) : std::string_view())) return pid;
    if (!is_known || std::sscanf(end, ") %*c %d", &pid) != 1) return 0;
  }
  return 0;
}

bool IsAncestor(pid_t pid) {
  return FindAncestor([pid](pid_t at, std::string_view) { return at == pid; }) != 0;
}

std::optional<bool> HasOpenFile(const std::string& folder,
                                const std::function<bool(std::string_view)>& is_it) {
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder + "/fd", error), end; !error && file != end;
       file.increment(error)) {
    std::error_code closed;  // meanwhile
    if (is_it(std::filesystem::read_symlink(*file, closed).native())) return true;
  }
  return error ? std::nullopt : std::optional(false);
}

bool HasChildren() { return !LookAtEnded(P_ALL, 0).none_left; }

bool ProcessTable::HasEnded(pid_t pid) { return LookAtEnded(P_PID, pid).pid == pid; }

ProcessTable::ProcessTable(boost::asio::io_context& io, bool use_pidfd,
                           std::function<void()> on_change)
    : io_(io),
      use_pidfd_(use_pidfd),
      on_change_(std::move(on_change)),
      child_signals_(io),
      had_children_at_start_(HasChildren()) {
  DDP_CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  boost::system::error_code error;
  child_signals_.assign(OpenSignalFd(BitOf(SIGCHLD)).Release(), error);
  DDP_CHECK(!error);
  AwaitChildSignal();
}

void ProcessTable::Watch(pid_t pid, ExitHandler on_exit) {
  Child child{std::move(on_exit), std::nullopt};
  if (use_pidfd_) {
    // ENOSYS, EPERM (a seccomp filter), EMFILE: SIGCHLD alone does as well.
    UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    boost::system::error_code error;
    if (fd.is_open()) {
      child.pidfd.emplace(io_).assign(fd.get(), error);
      if (error) child.pidfd.reset();
      if (!error) fd.Release();
    }
  }
  const auto [entry, is_new] = children_.emplace(pid, std::move(child));
  DDP_CHECK(is_new);
  if (entry->second.pidfd) AwaitEnd(pid, *entry->second.pidfd);
  // Without one: the signal of a child that has ended already is pending, as SIGCHLD is blocked.
}

void ProcessTable::AwaitEnd(pid_t pid, Descriptor& pidfd) {
  pidfd.async_wait(Descriptor::wait_read, [this, pid](boost::system::error_code error) {
    if (error == boost::asio::error::operation_aborted) return;
    const auto child = children_.find(pid);
    if (child == children_.end()) return;
    const Ended ended = LookAtEnded(P_PID, pid);
    // Something else in this process has reaped it. The worker's end is a fact all the same.
    if (ended.none_left) return Finish(pid, ExitStatus{.is_unknown = true});
    if (ended.pid == pid) return Finish(pid, ended.status);
    AwaitEnd(pid, *child->second.pidfd);
  });
}

void ProcessTable::Finish(pid_t pid, const ExitStatus& status) {
  const auto node = children_.extract(pid);
  node.mapped().on_exit(status);
  ReapChild(pid);
  on_change_();
  // A sweep stops at a watched zombie; now that it is gone the rest can be seen.
  if (std::exchange(is_sweep_unfinished_, false)) {
    boost::asio::post(io_, [this] { Sweep(); });
  }
}

void ProcessTable::AwaitChildSignal() {
  child_signals_.async_wait(Descriptor::wait_read, [this](boost::system::error_code error) {
    if (error == boost::asio::error::operation_aborted) return;
    signalfd_siginfo info;
    while (read(child_signals_.native_handle(), &info, sizeof(info)) > 0) {
    }
    Sweep();
    AwaitChildSignal();
  });
}

// Reaps every ended child that nobody watches and that is no helper. A watched one is left to its
// pidfd, which keeps the order of deaths; WNOWAIT shows the same zombie again and again, so the
// sweep pauses there.
void ProcessTable::Sweep() {
  bool is_changed = false;
  for (Ended ended = LookAtEnded(P_ALL, 0); ended.pid != 0; ended = LookAtEnded(P_ALL, 0)) {
    const auto child = children_.find(ended.pid);
    if (child == children_.end() && IsHelper(ended.pid)) break;  // RemoveHelper() wakes us
    if (child == children_.end()) {
      ReapChild(ended.pid);
      is_changed = true;
    } else if (child->second.pidfd) {
      is_sweep_unfinished_ = true;
      break;
    } else {
      Finish(ended.pid, ended.status);
    }
  }
  if (is_changed) on_change_();
}

}  // namespace ddprun::launcher
