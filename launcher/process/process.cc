#include "launcher/process/process.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include "launcher/process/raw_syscall.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using boost::asio::posix::stream_descriptor;

// The first ended child of those meant, left a zombie. No pid: none has ended, or (`none_left`)
// there is no such child.
struct Ended {
  pid_t pid = 0;
  ExitStatus status{};
  bool none_left = false;
};

Ended LookAtEnded(idtype_t type, pid_t pid) {
  siginfo_t info{};
  int result = 0;
  do {
    result = waitid(type, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    DDP_CHECK(errno == ECHILD);
    return Ended{.none_left = true};
  }
  if (info.si_pid == 0) return Ended{};
  return Ended{.pid = info.si_pid, .status = DecodeWaitInfo(info.si_code, info.si_status)};
}

}  // namespace

void ReapChild(pid_t pid) {
  siginfo_t info{};
  int result = 0;
  do {
    // __WALL: the guardian sends no signal at its end, which makes it a child of the other kind.
    result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | __WALL);
  } while (result != 0 && errno == EINTR);
  DDP_CHECK(result == 0 || errno == ECHILD);
}

bool ReapChildBy(pid_t pid, TimePoint deadline) {
  for (;;) {
    siginfo_t info{};
    const int result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | __WALL);
    DDP_CHECK(result == 0 || errno == ECHILD || errno == EINTR);
    if (info.si_pid == pid || (result != 0 && errno == ECHILD)) return true;
    if (SteadyNow() >= deadline) return false;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

bool HasChildren() { return !LookAtEnded(P_ALL, 0).none_left; }

class ProcessTable::Impl {
 public:
  Impl(boost::asio::io_context& io, Options options, std::function<void()> on_change)
      : io_(io), options_(options), on_change_(std::move(on_change)), child_signals_(io) {
    DDP_CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    DDP_CHECK(fd.is_open());
    had_children_at_start_ = HasChildren();
    boost::system::error_code error;
    child_signals_.assign(fd.Release(), error);
    DDP_CHECK(!error);
    AwaitChildSignal();
  }

  void Watch(pid_t pid, ExitHandler on_exit, std::function<void()> on_reaped) {
    Child child{std::move(on_exit), std::move(on_reaped), std::nullopt};
    if (options_.use_pidfd) {
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

  bool HasEnded(pid_t pid) const { return LookAtEnded(P_PID, pid).pid == pid; }
  bool had_children_at_start() const { return had_children_at_start_; }

 private:
  struct Child {
    ExitHandler on_exit;
    std::function<void()> on_reaped;
    std::optional<stream_descriptor> pidfd;
  };

  void AwaitEnd(pid_t pid, stream_descriptor& pidfd) {
    pidfd.async_wait(stream_descriptor::wait_read, [this, pid](boost::system::error_code error) {
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

  void Finish(pid_t pid, const ExitStatus& status) {
    auto node = children_.extract(pid);
    Child& child = node.mapped();
    child.on_exit(status);
    ReapChild(pid);
    child.on_reaped();
    // A sweep stops at a watched zombie; now that it is gone the rest can be seen.
    if (std::exchange(is_sweep_unfinished_, false)) {
      boost::asio::post(io_, [this] { Sweep(); });
    }
  }

  void AwaitChildSignal() {
    child_signals_.async_wait(
        stream_descriptor::wait_read, [this](boost::system::error_code error) {
          if (error == boost::asio::error::operation_aborted) return;
          signalfd_siginfo info;
          while (read(child_signals_.native_handle(), &info, sizeof(info)) > 0) {
          }
          Sweep();
          AwaitChildSignal();
        });
  }

  // Reaps every ended child that nobody watches. A watched one is left to its pidfd, which keeps
  // the order of deaths; WNOWAIT shows the same zombie again and again, so the sweep pauses there.
  void Sweep() {
    bool is_changed = false;
    for (Ended ended = LookAtEnded(P_ALL, 0); ended.pid != 0; ended = LookAtEnded(P_ALL, 0)) {
      const auto child = children_.find(ended.pid);
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

  boost::asio::io_context& io_;
  const Options options_;
  const std::function<void()> on_change_;
  stream_descriptor child_signals_;
  std::map<pid_t, Child> children_;
  bool is_sweep_unfinished_ = false;
  bool had_children_at_start_ = false;
};

ProcessTable::ProcessTable(boost::asio::io_context& io, Options options,
                           std::function<void()> on_change)
    : impl_(std::make_unique<Impl>(io, options, std::move(on_change))) {}
ProcessTable::~ProcessTable() = default;

void ProcessTable::Watch(pid_t pid, ExitHandler on_exit, std::function<void()> on_reaped) {
  impl_->Watch(pid, std::move(on_exit), std::move(on_reaped));
}
bool ProcessTable::HasEnded(pid_t pid) const { return impl_->HasEnded(pid); }
bool ProcessTable::had_children_at_start() const { return impl_->had_children_at_start(); }

}  // namespace ddprun::launcher
