// Carries what the workers of one node write to files and to the console.
//
// Threads of its own read and write, so that a slow disk or console delays neither the agent nor,
// beyond what the pipes hold, a worker. A disk that does not answer at all stops no worker.
#ifndef DDPRUN_LAUNCHER_LOGS_LOG_ROUTER_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_ROUTER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "launcher/logs/run_folder.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

class LogThread;
struct StreamPlan;

struct LogOptions {
  std::string log_dir;  // "": files, where some are needed, go under temp_dir; "/dev/null": none
  std::string log_dir_source = "--log-dir";  // what messages call it
  std::string run_id = "none";
  bool names_node = false;  // the folder of the run has `hostname` in its name
  std::string role = "default";
  StreamChoice redirects;
  StreamChoice tee;
  std::set<int> console_ranks{};  // local ranks whose output the console gets; empty: all
  // Tee'd lines that reach the console and hold one of these texts are copied, with their prefix,
  // to filtered_stdout.log and filtered_stderr.log in the attempt's folder.
  std::vector<std::string> stdout_filters{};
  std::vector<std::string> stderr_filters{};
  // In front of tee'd lines; see LinePrefix.
  std::string prefix_template = "[${role_name}${local_rank}]:";
  std::string hostname{};
  std::string temp_dir = "/tmp";
  // In place of temp_dir where only error files need a folder: making and removing one for each
  // worker takes a tenth of a start's processor time on ext4. Not used when it cannot be written or
  // has no room.
  std::string memory_dir = "/dev/shm";
  // stderr is left alone where nothing redirects it; reports then have no last lines.
  bool inherit_stderr = false;
  // Told of the folder under temp_dir or memory_dir, by LogRouter::OpenWorker.
  std::function<void(const std::string&)> on_temporary_folder{};
  // Called before a log file is touched, on the thread that does so.
  std::function<void()> hold_for_test{};
  int stdout_fd = 1;  // the console; they stay the caller's
  int stderr_fd = 2;
};

// What the configuration and DDPRUN_STDERR, TMPDIR and TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE ask;
// an empty template counts as none.
LogOptions MakeLogOptions(const LaunchConfig& config, const Environment& environment);

// What stands in front of the worker's tee'd lines: the template with its macros ${role_name},
// ${rank}, ${local_rank} and ${hostname} replaced as WithMacros does (text.h).
std::string LinePrefix(const LogOptions& options, int local_rank, int rank);

// The worker's ends. They are closed with this object: keep it until the worker has been started.
struct WorkerStdio {
  UniqueFd stdout_fd;  // not open: the worker inherits ours
  UniqueFd stderr_fd;
  std::string error_file;  // for TORCHELASTIC_ERROR_FILE; "": none
};

// The last 64 KiB, at most, of what a worker has written.
struct RecentOutput {
  bool is_kept = false;     // false: none of its streams passes through here, or nobody answers
  bool has_stdout = false;  // of both streams; false: stdout goes past us, and this is of stderr
  std::string text;         // as the worker wrote it
  uint64_t end = 0;         // bytes that it has written in all
  std::optional<TimePoint> written_at = {};  // the last of them; none: it has written nothing
};

// What of the workers' output was lost.
struct LogLosses {
  uint64_t console_lines = 0;
  uint64_t refused_lines = 0;  // of those, what stdout or stderr refused: a file on a full disk
  int console_error = 0;       // errno of the last write there that failed
  uint64_t file_lines = 0;
  int file_error = 0;
};

// One warning about what `now` has and `before` has not; "": nothing. What a stalled reader lost is
// not in it: its console says so itself. Nor is what a reader that has gone would have got.
std::string LossWarning(const LogLosses& before, const LogLosses& now, const std::string& folder);

// What makes folders and files (BeginRound, OpenWorker, MemoryFolder, Finish,
// RemoveAbandonedFolders) and what speaks of them (TakeLossWarning, run_folder) may be called on
// any thread, one call at a time; the other methods on any threads at once.
class LogRouter {
 public:
  // Starts the log thread. An error is this machine's (exit code 120) and one line: a log
  // directory that cannot be written to, no descriptors left.
  // REQUIRES: whatever must be forked before threads exist has been forked.
  static absl::StatusOr<std::unique_ptr<LogRouter>> Create(LogOptions options);
  // Writes out what can be written without waiting, and ends the thread. One that sits in a file
  // which does not answer for a second is left behind, with what it uses: the process is to end.
  ~LogRouter();
  LogRouter(const LogRouter&) = delete;
  LogRouter& operator=(const LogRouter&) = delete;

  // Another set of workers begins; the channels of the one before are read empty and closed.
  // REQUIRES: none of the earlier workers lives.
  void BeginRound(int restart_count);
  // Reads the round's channels empty and closes them, whoever still holds one: what the kernel
  // keeps would never end them.
  void EndRound();
  // Opens the channels of one worker of the round. Errors are this machine's. Says once, in one
  // line, where the files are if the user has not chosen it.
  absl::StatusOr<WorkerStdio> OpenWorker(int local_rank, int rank);

  // Whether what that worker writes to stderr reaches our console.
  bool ShowsStderr(int local_rank) const;

  // As RunFolder::MemoryFolder.
  absl::StatusOr<std::string> MemoryFolder() { return folder_.MemoryFolder(); }

  // The last `max_lines` lines of what the round's worker has written to stderr, up to this call
  // or, where it writes to a terminal, up to its end. Waits for the log thread at most `timeout`.
  std::string StderrTail(int local_rank, size_t max_lines, Duration timeout);
  // What the round's worker has written from byte `from` on, as far as it is kept. Waits for the
  // log thread at most `timeout`.
  RecentOutput Recent(int local_rank, uint64_t from, Duration timeout);
  // As Recent(), of the text the last line alone, or its last 4 KiB.
  RecentOutput LastLine(int local_rank, Duration timeout);
  // Waits at most `timeout` until every channel of the round has ended and all of it is written.
  // False: a process still holds one (a grandchild), or the console does not take more.
  bool Drain(Duration timeout);
  // As Drain, and removes what was temporary (RunFolder): for an end without the destructor.
  void Finish(Duration timeout);
  // Removes the temporary folders that killed runs of this user have left, as far as no log is in
  // them.
  void RemoveAbandonedFolders();
  // Queues one line for our stderr behind what the workers wrote. Never waits for the console.
  void Say(const std::string& line);
  // The same for a line that can be missed: false, and nothing done, while many wait already.
  bool Offer(const std::string& line);

  // When a worker last wrote what passes through here; the start before that.
  TimePoint last_output_at() const;

  // What was lost so far.
  LogLosses losses() const;
  // One warning for the user about what was lost and not told of before; "": nothing.
  std::string TakeLossWarning();
  // The log file that has not answered for `at_least` now; "": none. After 5 s it is told of.
  std::string busy_file(Duration at_least) const;
  // Where this run's files are; "" when there are none.
  std::string run_folder() const;

 private:
  LogRouter(LogOptions options, RunFolder folder, std::unique_ptr<LogThread> thread);
  bool IsShown(int local_rank) const;
  Streams RedirectsOf(int local_rank) const;
  void TellPlace();
  absl::Status PlanFile(StreamPlan& plan, const std::string& folder);
  absl::Status ProvideCopies(bool is_stderr);
  absl::Status OpenChannel(StreamPlan plan, UniqueFd& worker_end);

  const LogOptions options_;
  RunFolder folder_;
  std::unique_ptr<LogThread> thread_;
  std::string place_told_;
  LogLosses told_losses_;
  std::array<bool, 2> has_copies_ = {};  // of stdout and stderr, in this attempt
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_ROUTER_H_
