// Starts the worker processes of one node side by side.
#ifndef DDPRUN_LAUNCHER_PROCESS_SPAWN_H_
#define DDPRUN_LAUNCHER_PROCESS_SPAWN_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/process/process_baseline.h"

namespace boost::asio {
class io_context;
}

namespace ddprun::launcher {

struct SpawnRequest {
  std::string executable;         // a path; no search happens here
  std::vector<std::string> argv;  // argv[0] included
  std::vector<std::string> env;   // "NAME=value"
  // What becomes 0 to 2 of the child; -1 keeps the agent's. Borrowed for the call.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  // Directory of the cgroup to be born in, borrowed for the call; -1: the agent's. Where the kernel
  // does not allow it, the agent's too.
  int cgroup = -1;
  std::set<int> cpus{};  // what it is bound to; empty: what the agent is
};

struct SpawnResult {
  pid_t pid = -1;      // -1: nothing was started, and the rest says why
  int error = 0;       // errno
  int exit_code = 0;   // kExitNotFound, kExitNotExecutable or kExitMachine
  std::string text{};  // `exec "./train": No such file or directory (ENOENT)`

  bool ok() const { return pid > 0; }
};

// Some children on their way from clone to exec. They run beside the agent and not one after the
// other, so an executable on a file system that hangs holds up its own worker and nobody else.
// Until then they live in the agent's memory; what they read there belongs to this object, which
// leaves it to those that are still on their way at its end.
//
// Used on the io_context's one thread, which must live as long as the agent: the kernel kills the
// workers when it ends.
class SpawnBatch {
 public:
  // A child could not become its program. It ends by itself and must be reaped.
  using FailureHandler = std::function<void(pid_t, const SpawnResult& why)>;

  // `on_done` is called once, after Close() and when every child has begun its program or ended, if
  // there was one; it may destroy this object. Neither is called from inside Start or Close.
  SpawnBatch(boost::asio::io_context& io, const ProcessBaseline& baseline,
             FailureHandler on_failure, std::function<void()> on_done);
  // What children that are still on their way read is left to them for good.
  ~SpawnBatch();
  SpawnBatch(const SpawnBatch&) = delete;
  SpawnBatch& operator=(const SpawnBatch&) = delete;

  // Starts `request` as leader of a session and process group of its own (both from a moment after
  // the call on), with descriptors 0 to 2 only and the signals and limits of the baseline. A
  // failure is this machine's: no process, no descriptor. REQUIRES: argv is not empty; not closed.
  SpawnResult Start(SpawnRequest request);

  // No further child follows.
  void Close();

  // Calls `on_failure` for what has failed by now. A child that has ended after a failure is among
  // them, so ask before its end is taken for that of its program.
  void Check();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SPAWN_H_
