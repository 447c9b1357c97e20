// Words and exit code for a program that did not start.
#ifndef DDPRUN_LAUNCHER_PROCESS_SPAWN_ERROR_H_
#define DDPRUN_LAUNCHER_PROCESS_SPAWN_ERROR_H_

#include <string>

#include "launcher/process/child_setup.h"
#include "launcher/process/spawn.h"

namespace ddprun::launcher {

// `exec "./train": No such file or directory (ENOENT)`, with what the file system can add: a
// missing interpreter, a directory. Looks at `executable`.
SpawnResult DescribeSpawnFailure(const std::string& executable, ChildStep step, int error);

// `clone: Resource temporarily unavailable (EAGAIN)`: this machine could not start any process.
SpawnResult DescribeMachineFailure(const std::string& operation, int error);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SPAWN_ERROR_H_
