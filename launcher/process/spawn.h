// Starts one worker process.
#ifndef DDPRUN_LAUNCHER_PROCESS_SPAWN_H_
#define DDPRUN_LAUNCHER_PROCESS_SPAWN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/process/process_baseline.h"

namespace ddprun::launcher {

struct SpawnRequest {
  std::string executable;         // a path; no search happens here
  std::vector<std::string> argv;  // argv[0] included
  std::vector<std::string> env;   // "NAME=value"
  // What becomes 0 to 2 of the child; -1 keeps the agent's. Borrowed for the call.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
};

struct SpawnResult {
  pid_t pid = -1;      // -1: nothing was started, and the rest says why
  int error = 0;       // errno
  int exit_code = 0;   // kExitNotFound, kExitNotExecutable or kExitMachine
  std::string text{};  // `exec "./train": No such file or directory (ENOENT)`

  bool ok() const { return pid > 0; }
};

// Starts `request` as leader of a session and process group of its own, with descriptors 0 to 2
// only and the signals and limits of `baseline`. Returns once the program runs or has failed to
// start. The kernel kills the worker when the calling thread ends, so call from one that lives as
// long as the agent. REQUIRES: argv is not empty.
SpawnResult Spawn(const SpawnRequest& request, const ProcessBaseline& baseline);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SPAWN_H_
