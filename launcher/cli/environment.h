// The surroundings a command line is read in. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_CLI_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

// The file with a site's defaults, as it was read (site_file.h).
struct SiteFile {
  std::string path;  // empty: there is none
  std::string text;
  std::string trouble = {};  // why it cannot be used, and what to do
};

struct Environment {
  // "NAME=value", in the order of environ, but for the secrets: no child is to have them.
  std::vector<std::string> variables;
  std::optional<std::string> token;          // of DDPRUN_TOKEN
  std::optional<std::string> etcd_password;  // of DDPRUN_ETCD_PASSWORD
  MachineFacts machine;
  SiteFile site = {};

  // The variable's value; of several with one name the first, as getenv has it.
  std::optional<std::string> Get(std::string_view name) const;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_ENVIRONMENT_H_
