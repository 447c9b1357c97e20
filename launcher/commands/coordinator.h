// `ddprun coordinator`: the rendezvous of one job, apart from its nodes.
#ifndef DDPRUN_LAUNCHER_COMMANDS_COORDINATOR_H_
#define DDPRUN_LAUNCHER_COMMANDS_COORDINATOR_H_

#include "launcher/cli/cli.h"

namespace ddprun::launcher {

// Listens until the job is over or a signal comes, and returns the exit code of ddprun: the job's,
// or 128+n for signal n; what went wrong has been told. Starts no process. REQUIRES: this process
// has one thread.
int RunCoordinator(const CoordinatorOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_COORDINATOR_H_
