// --rdzv_conf. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_RENDEZVOUS_CONF_H_
#define DDPRUN_LAUNCHER_CLI_RENDEZVOUS_CONF_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

// key=value,... An unknown key is no error (torchrun ignores it): it becomes a warning. The error
// is InvalidArgument and says what is accepted. The caller puts the option in front of both, and
// the text in front of the error.
absl::StatusOr<RendezvousConf> ParseRendezvousConf(const std::string& text,
                                                   std::vector<std::string>& warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_RENDEZVOUS_CONF_H_
