// A second process that outlives the agent just long enough to end what the agent leaves behind.
#ifndef DDPRUN_LAUNCHER_PROCESS_GUARDIAN_H_
#define DDPRUN_LAUNCHER_PROCESS_GUARDIAN_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "launcher/process/folder_note.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/session_table.h"
#include "launcher/process/signal_note.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// The guardian holds the read end of a pipe whose write end only the agent has, and sleeps; it
// notes the signals that it gets, which it survives, SIGKILL excepted (signal_note.h). When the
// pipe closes, however the agent ended, it kills the job's cgroup, where there is one, every
// process of the workers' sessions, which it finds in memory shared with the agent
// (session_table.h), and every process that carries the job's mark, until two walks over /proc find
// none; it removes the cgroup, the file with a secret and, as far as no log is in them, the folders
// for error files (folder_note.h), and exits. It lives in a session of its own, with all signals
// blocked, /dev/null on 0 to 2 and nothing else open.
//
// It is a fork, not a program: it works when the binary has been replaced or removed meanwhile. It
// ends without SIGCHLD and ordinary waits do not see it (no exit signal), so "no children" means no
// workers.
//
// Used on the agent's main thread only, but for NoteFolder, which the one thread calls that opens
// workers' files.
class Guardian {
 public:
  // Makes the job's cgroup, if it can, and forks the guardian. Call first thing in main, before any
  // thread and any descriptor that matters. REQUIRES: `job_mark` (leftovers.h) is not empty.
  static absl::StatusOr<std::unique_ptr<Guardian>> Start(const std::string& job_mark);

  // Removes the job's cgroup and ends the guardian. Call after KillLeftovers: nobody looks for
  // leftovers from here on. But where a process is still in the cgroup, or a worker was given up,
  // the guardian is left to deal with it, as if the agent had died.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // From now on a guardian that dies is replaced, at most once a second; `on_restart` gets a
  // sentence for the log each time. `io` is run by the calling thread and outlives this object,
  // after which it is not run.
  void Watch(boost::asio::io_context& io, std::function<void(const std::string&)> on_restart);

  // A worker's session (its pid), as long as its process group has members. Wakes nobody.
  void AddSession(pid_t session) { memory_->sessions.Add(session); }
  void RemoveSession(pid_t session) { memory_->sessions.Remove(session); }
  // The folder made for the workers' error files.
  void NoteFolder(const std::string& folder) { memory_->folder.Write(folder); }
  // A file that nobody is to find when the agent has gone. Call at most once.
  void NoteSecret(const std::string& file) { memory_->secret.Write(file); }

  // Whether it got the signal at `since` or later, and so the workers, too.
  bool HasReceived(int signal, TimePoint since) const {
    return memory_->signals.HasSince(signal, since);
  }

  pid_t pid() const { return pid_; }
  // Where workers should be born; null where this machine has none for us. Lives as long as this.
  const JobCgroup* cgroup() const { return cgroup_.get(); }

 private:
  // Shared with the guardian.
  struct Memory {
    SessionTable sessions;
    FolderNote folder;
    FileNote secret;
    SignalNote signals;
  };
  struct Unmap {
    void operator()(Memory* memory) const;
  };
  struct Watcher {
    explicit Watcher(boost::asio::io_context& io) : pipe(io), timer(io) {}
    boost::asio::posix::stream_descriptor pipe;  // a copy of write_end_
    boost::asio::steady_timer timer;
  };

  Guardian(const std::string& job_mark, std::unique_ptr<Memory, Unmap> memory);
  absl::Status Fork();
  void AwaitDeath();
  void Restart();
  void RestartLater(const std::string& why);
  void End();

  const std::string mark_;
  const std::unique_ptr<Memory, Unmap> memory_;
  const std::unique_ptr<JobCgroup> cgroup_;
  pid_t pid_ = 0;
  pid_t dead_pid_ = 0;
  UniqueFd write_end_;
  TimePoint born_;
  std::optional<Watcher> watcher_;
  std::function<void(const std::string&)> on_restart_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_GUARDIAN_H_
