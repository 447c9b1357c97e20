#include "launcher/process/guardian.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include "absl/status/status.h"

#include "launcher/process/folder_note.h"
#include "launcher/process/guardian_child.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/process.h"
#include "launcher/process/raw_syscall.h"
#include "launcher/process/session_table.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using boost::asio::posix::stream_descriptor;

constexpr Duration kRestartPause = std::chrono::seconds(1);
// A killed guardian ends at once, unless the kernel holds it too.
constexpr Duration kLastReap = std::chrono::seconds(1);

// What waits on the io_context. Owned by the pending wait alone, hence shared_ptr: the guardian is
// older than the io_context and outlives it, and a descriptor must not outlive its io_context.
template <typename Owner>
struct Watcher {
  Watcher(boost::asio::io_context& io, Owner* guardian)
      : owner(guardian), descriptor(io), timer(io) {}

  Owner* owner;  // null once the guardian object is gone
  stream_descriptor descriptor;
  boost::asio::steady_timer timer;
};

}  // namespace

class Guardian::Impl {
 public:
  Impl(std::string mark, SessionTable::Pointer sessions, FolderNote::Pointer folder)
      : mark_(std::move(mark)),
        sessions_(std::move(sessions)),
        folder_(std::move(folder)),
        cgroup_(JobCgroup::Make(mark_)) {}

  ~Impl() {
    if (const auto watcher = watcher_.lock()) watcher->owner = nullptr;
    const bool is_removed = cgroup_ == nullptr || cgroup_->Remove();
    if (pid_ != 0 && (!is_removed || !sessions_->is_empty())) {
      StopWatching();  // and leave the rest to it
      return;
    }
    if (!is_removed) {  // it is dead itself: one last try in its place
      cgroup_->Kill();
      cgroup_->Remove();
    }
    End();
  }

  absl::Status Fork() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "guardian: pipe");
    UniqueFd read_end(ends[0]);
    UniqueFd write_end(ends[1]);
    GuardianOrders orders{
        .mark = mark_.c_str(), .sessions = sessions_.get(), .folder = folder_.get()};
    if (cgroup_ != nullptr) {
      orders.cgroup_name = cgroup_->name().c_str();
      orders.cgroup_path = cgroup_->path().c_str();
      orders.cgroup_kill_path = cgroup_->kill_path().c_str();
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

  void Watch(boost::asio::io_context& io, std::function<void(const std::string&)> on_restart) {
    DDP_CHECK(!on_restart_);
    on_restart_ = std::move(on_restart);
    const auto watcher = std::make_shared<Watcher<Impl>>(io, this);
    watcher_ = watcher;
    AwaitDeath(watcher);
  }

  SessionTable& sessions() { return *sessions_; }
  FolderNote& folder() { return *folder_; }
  pid_t pid() const { return pid_; }
  const JobCgroup* cgroup() const { return cgroup_.get(); }

 private:
  using WatcherPtr = std::shared_ptr<Watcher<Impl>>;

  // The write end of a pipe nobody reads any more reports an error: works without pidfd.
  void AwaitDeath(const WatcherPtr& watcher) {
    UniqueFd copy(fcntl(write_end_.get(), F_DUPFD_CLOEXEC, 3));
    boost::system::error_code error;
    if (copy.is_open()) watcher->descriptor.assign(copy.get(), error);
    if (!copy.is_open() || error) {
      return RestartLater(watcher, "guardian cannot be watched; trying again in 1 s");
    }
    copy.Release();
    watcher->descriptor.async_wait(stream_descriptor::wait_read,
                                   [watcher](boost::system::error_code failure) {
                                     if (failure || watcher->owner == nullptr) return;
                                     watcher->owner->OnDeath(watcher);
                                   });
  }

  void OnDeath(const WatcherPtr& watcher) {
    if (SteadyNow() - born_ < kRestartPause) {
      return RestartLater(watcher, "guardian died at once; trying again in 1 s");
    }
    End();
    Restart(watcher);
  }

  void Restart(const WatcherPtr& watcher) {
    const pid_t old = std::exchange(dead_pid_, 0);
    if (absl::Status status = Fork(); !status.ok()) {
      return RestartLater(watcher, std::string(status.message()) + "; trying again in 1 s");
    }
    AwaitDeath(watcher);
    on_restart_("guardian (pid " + std::to_string(old) + ") died; started another (pid " +
                std::to_string(pid_) + ")");
  }

  void RestartLater(const WatcherPtr& watcher, const std::string& why) {
    End();
    watcher->timer.expires_after(kRestartPause);
    watcher->timer.async_wait([watcher](boost::system::error_code failure) {
      if (!failure && watcher->owner != nullptr) watcher->owner->Restart(watcher);
    });
    on_restart_(why);
  }

  // Closes the other copy of the pipe's write end.
  void StopWatching() {
    const WatcherPtr watcher = watcher_.lock();
    if (watcher == nullptr) return;
    boost::system::error_code ignored;
    watcher->descriptor.close(ignored);
    watcher->timer.cancel();
  }

  void End() {
    StopWatching();
    if (pid_ > 0) {
      kill(pid_, SIGKILL);  // not reaped yet, so the number is its own
      static_cast<void>(ReapChildBy(pid_, SteadyNow() + kLastReap));
      dead_pid_ = std::exchange(pid_, 0);
    }
    write_end_.Reset();
  }

  const std::string mark_;
  const SessionTable::Pointer sessions_;
  const FolderNote::Pointer folder_;
  const std::unique_ptr<JobCgroup> cgroup_;
  pid_t pid_ = 0;
  pid_t dead_pid_ = 0;
  UniqueFd write_end_;
  TimePoint born_;
  std::weak_ptr<Watcher<Impl>> watcher_;
  std::function<void(const std::string&)> on_restart_;
};

Guardian::Guardian(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Guardian::~Guardian() = default;

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start(const std::string& job_mark) {
  DDP_CHECK(!job_mark.empty());
  SessionTable::Pointer sessions = SessionTable::Map();
  if (sessions == nullptr) return absl::ErrnoToStatus(errno, "guardian: mmap");
  FolderNote::Pointer folder = FolderNote::Map();
  if (folder == nullptr) return absl::ErrnoToStatus(errno, "guardian: mmap");
  auto impl = std::make_unique<Impl>(job_mark, std::move(sessions), std::move(folder));
  if (absl::Status status = impl->Fork(); !status.ok()) return status;
  return std::unique_ptr<Guardian>(new Guardian(std::move(impl)));
}

void Guardian::Watch(boost::asio::io_context& io,
                     std::function<void(const std::string&)> on_restart) {
  impl_->Watch(io, std::move(on_restart));
}
void Guardian::AddSession(pid_t session) { impl_->sessions().Add(session); }
void Guardian::RemoveSession(pid_t session) { impl_->sessions().Remove(session); }
void Guardian::NoteFolder(const std::string& folder) { impl_->folder().Write(folder); }
pid_t Guardian::pid() const { return impl_->pid(); }
const JobCgroup* Guardian::cgroup() const { return impl_->cgroup(); }

}  // namespace ddprun::launcher
