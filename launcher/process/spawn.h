// One worker process: what it is made of, and its start.
#ifndef DDPRUN_LAUNCHER_PROCESS_SPAWN_H_
#define DDPRUN_LAUNCHER_PROCESS_SPAWN_H_

#include <sched.h>
#include <sys/types.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/process/child_setup.h"
#include "launcher/process/process_baseline.h"

namespace ddprun::launcher {

struct SpawnRequest {
  std::string executable;         // a path; no search happens here
  std::vector<std::string> argv;  // argv[0] included
  std::vector<std::string> env;   // "NAME=value"
  // What becomes 0 to 2 of the child; -1 keeps the agent's. Borrowed until it has been started.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  int counters_fd = -1;   // of the page in which it tells of itself, borrowed likewise; -1: none
  int round_key_fd = -1;  // of the round's key, borrowed likewise; -1: there is none
  // Directory of the cgroup to be born in, borrowed likewise; -1: the agent's. Where the kernel
  // does not allow it, the agent's too.
  int cgroup = -1;
  std::set<int> cpus{};  // what it is bound to; empty: what the agent is
};

// A child on its way from clone to exec. Until then it lives in the agent's memory, and what it
// reads there belongs to this object, which must not end before.
class SpawnedChild {
 public:
  // Starts `request` as leader of a session and process group of its own (both from a moment after
  // the call on), with descriptors 0 to 2 only and the signals and limits of `baseline`. Does not
  // wait for it: a step that fails, the exec among them, is a ChildFailure in `error_pipe`, a
  // descriptor that is closed on exec. REQUIRES: argv is not empty.
  SpawnedChild(SpawnRequest request, const ProcessBaseline& baseline, int error_pipe);
  SpawnedChild(const SpawnedChild&) = delete;
  SpawnedChild& operator=(const SpawnedChild&) = delete;

  pid_t pid() const { return pid_; }    // -1: there is none
  int error() const { return error_; }  // errno, why there is none
  const std::string& executable() const { return request_.executable; }

 private:
  const SpawnRequest request_;
  std::vector<char*> argv_;
  std::vector<char*> envp_;
  std::vector<cpu_set_t> cpu_mask_;
  ChildPlan plan_;
  const std::unique_ptr<char[]> stack_;
  pid_t pid_ = -1;
  int error_ = 0;
};

// Why a program did not start.
struct SpawnFailure {
  int exit_code = 0;   // kExitNotFound, kExitNotExecutable or kExitMachine
  std::string text{};  // `exec "./train": No such file or directory (ENOENT)`
};

// `exec "./train": No such file or directory (ENOENT)`, with what the file system can add: a
// missing interpreter, a directory. Looks at `executable`.
SpawnFailure DescribeSpawnFailure(const std::string& executable, const ChildFailure& failure);

// `clone: Resource temporarily unavailable (EAGAIN)`: this machine could not start any process.
SpawnFailure DescribeMachineFailure(const std::string& operation, int error);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SPAWN_H_
