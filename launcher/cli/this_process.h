// The environment of this very process, taken once at the start.
#ifndef DDPRUN_LAUNCHER_CLI_THIS_PROCESS_H_
#define DDPRUN_LAUNCHER_CLI_THIS_PROCESS_H_

#include "launcher/cli/environment.h"

namespace ddprun::launcher {

// Its variables, the CPUs in its affinity mask, whether a shell on a terminal has started
// it, a fresh random id, its names, the file with the site's defaults. Sets DDPRUN_NCCL_PYTHON
// where ddprun is installed into an environment of Python and neither that nor PYTHON_EXEC is set.
// Where a variable holds a secret this process leaves no core dump from here on (LeaveNoCore).
Environment EnvironmentOfThisProcess();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_THIS_PROCESS_H_
