// `ddprun [options] PROGRAM`: this node's part of a job.
#ifndef DDPRUN_LAUNCHER_COMMANDS_LAUNCH_H_
#define DDPRUN_LAUNCHER_COMMANDS_LAUNCH_H_

#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

// Finds the program, prepares this process, and runs the agent. Returns the exit code of ddprun;
// what went wrong has been told. REQUIRES: this process has one thread.
int Launch(LaunchConfig config, const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_LAUNCH_H_
