// Slurm's notation for many host names: n[1-3,7],gpu[01-03]. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_NODE_LIST_H_
#define DDPRUN_LAUNCHER_CLI_NODE_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// The names, in the order of `scontrol show hostnames`, which containers do not have. An error is
// InvalidArgument and says what is wrong with the text, which the caller puts in front: brackets
// that do not match or that are not the last of a name, ranges that are none, more than 65,536
// names.
absl::StatusOr<std::vector<std::string>> ExpandNodeList(const std::string& text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_NODE_LIST_H_
