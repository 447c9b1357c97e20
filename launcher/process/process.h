// The agent's children: noticed when they end, looked at while still zombies, then reaped.
#ifndef DDPRUN_LAUNCHER_PROCESS_PROCESS_H_
#define DDPRUN_LAUNCHER_PROCESS_PROCESS_H_

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "launcher/process/exit_status.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Waits for a child and forgets it: for one that has ended, or was killed. The kernel may hold it:
// false when it has not ended by `deadline`.  REQUIRES, without one: it has ended.
bool ReapChild(pid_t pid, TimePoint deadline = TimePoint::max());

// Whether this process has a child, be it one that has ended; the guardian is none of them. Reaps
// nobody. A subreaper without children has no descendants.
bool HasChildren();

// The nearest of `from`, its parent and so on that `is_it`, by its number and its program's name
// ("": not known); 0: there is none. Without /proc nobody is known but the first.
pid_t FindAncestor(const std::function<bool(pid_t, std::string_view)>& is_it,
                   pid_t from = getppid());
bool IsAncestor(pid_t pid);

// Whether a process has a file open whose link `is_it` ("socket:[4711]", "/dev/nvidia0"). `folder`:
// its own of /proc. nullopt: its descriptors cannot be read.
std::optional<bool> HasOpenFile(const std::string& folder,
                                const std::function<bool(std::string_view)>& is_it);

// Knows every child of this process and reaps them all but helpers (helper_pids.h); one object per
// process.
//
// Each worker is watched by a pidfd: epoll keeps the order in which several of them died, which a
// walk over the children does not. Where pidfd_open is missing or forbidden, SIGCHLD and that walk
// notice them; both come from the kernel, nothing polls. The process becomes a subreaper: what a
// worker leaves behind becomes our child and is reaped here when it ends.
//
// Runs on the io_context's one thread, which must be the one that forks. PrepareAgentProcess() has
// blocked SIGCHLD in all threads.
class ProcessTable {
 public:
  // Called once, on the io_context's thread, when the child has ended. It is a zombie then, so its
  // process group can be signalled without meeting a stranger; it is reaped when the call returns.
  // Where something else has reaped it before us, its status is unknown.
  using ExitHandler = std::function<void(const ExitStatus&)>;

  // `use_pidfd`: false is as on a kernel without pidfd_open. `on_change` is called after children
  // were reaped.
  ProcessTable(boost::asio::io_context& io, bool use_pidfd, std::function<void()> on_change);
  ProcessTable(const ProcessTable&) = delete;
  ProcessTable& operator=(const ProcessTable&) = delete;

  // REQUIRES: `pid` is a child of this process and not watched yet. `on_change` follows `on_exit`
  // directly, once the pid is free.
  void Watch(pid_t pid, ExitHandler on_exit);

  // Whether a watched child has ended, also when its handler's turn has not come yet.
  static bool HasEnded(pid_t pid);

  // Whether the process was started with children of its own (a script that became ddprun), which
  // are no part of the job.
  bool had_children_at_start() const { return had_children_at_start_; }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  struct Child {
    ExitHandler on_exit;
    std::optional<Descriptor> pidfd;
  };

  void AwaitEnd(pid_t pid, Descriptor& pidfd);
  void AwaitChildSignal();
  void Finish(pid_t pid, const ExitStatus& status);
  void Sweep();

  boost::asio::io_context& io_;
  const bool use_pidfd_;
  const std::function<void()> on_change_;
  Descriptor child_signals_;
  std::map<pid_t, Child> children_;
  bool is_sweep_unfinished_ = false;
  const bool had_children_at_start_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PROCESS_H_
