// The options about what workers write: their values, and what they would do in vain. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_OUTPUT_OPTIONS_H_
#define DDPRUN_LAUNCHER_CLI_OUTPUT_OPTIONS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

// Local ranks by comma: "0,1,12", white space around them allowed. An empty text: none.
absl::StatusOr<std::set<int>> ParseLocalRanks(const std::string& text);
// Texts by comma, ",," is a comma in one of them. An empty text: none.
absl::StatusOr<std::vector<std::string>> ParseLineFilters(const std::string& text);

// One line for each thing that was asked for and cannot happen: local ranks that are not on this
// node, copies of lines that nothing tees. REQUIRES: workers_per_node is known.
std::vector<std::string> OutputWarnings(const LaunchConfig& config);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_OUTPUT_OPTIONS_H_
