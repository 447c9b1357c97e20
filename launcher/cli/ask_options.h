// The options of the commands that ask a running job.
#ifndef DDPRUN_LAUNCHER_CLI_ASK_OPTIONS_H_
#define DDPRUN_LAUNCHER_CLI_ASK_OPTIONS_H_

#include <string>
#include <string_view>

#include "launcher/cli/cli.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {

// `ddprun NAME [JOB] ...`.
AskOptions AskOf(std::string_view name, const std::string& job, OptionReader& read);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_ASK_OPTIONS_H_
