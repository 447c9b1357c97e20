// `ddprun top`: a job, alive, on the whole terminal.
#ifndef DDPRUN_LAUNCHER_COMMANDS_TOP_H_
#define DDPRUN_LAUNCHER_COMMANDS_TOP_H_

#include "launcher/cli/cli.h"

namespace ddprun::launcher {

// Until q, a signal, or the job's end. The terminal is as it was before, whatever ends it but
// SIGKILL. Exit codes as `ddprun status`.
int RunTop(const AskOptions& options, const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_TOP_H_
