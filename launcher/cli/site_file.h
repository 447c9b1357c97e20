// A site's defaults: a file gives options to every job of a machine, as variables. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_SITE_FILE_H_
#define DDPRUN_LAUNCHER_CLI_SITE_FILE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

inline constexpr char kSiteFile[] = "/etc/ddprun.env";
inline constexpr char kSiteFileVariable[] = "DDPRUN_SITE_FILE";  // names another; empty: none
inline constexpr size_t kMaxSiteFileBytes = 64 * 1024;

// Its values by the name of their variable. A line is NAME=VALUE, where NAME stands in for an
// option, a comment from # on, or blank. The error is InvalidArgument and names file and line.
absl::StatusOr<std::map<std::string, GivenValue>> ParseSiteFile(const SiteFile& file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_SITE_FILE_H_
