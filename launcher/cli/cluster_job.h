// What one cluster manager tells of a job, and how it is read from its variables. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_CLUSTER_JOB_H_
#define DDPRUN_LAUNCHER_CLI_CLUSTER_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

// An option without text is not told.
struct ClusterJob {
  std::string title;   // "Slurm step 12.0"
  bool speaks = true;  // false: another task tells what all of them find alike
  int nodes = 1;
  std::string head{};  // the first node's name; empty: not told
  GivenValue size;     // --nnodes
  GivenValue node_rank;
  GivenValue endpoint;
  std::vector<uint16_t> more_ports{};  // where others have the endpoint's
  GivenValue id;
  GivenValue workers;
};

// An error with the way out of it; without a message where another task tells it.
absl::Status Contradiction(absl::string_view text, bool speaks = true);

// The variables of one manager, read as values; remembers the first that is wrong.
class ClusterVariables {
 public:
  // `environment` outlives it.
  explicit ClusterVariables(const Environment& environment) : environment_(environment) {}

  std::string Text(const std::string& name) const { return environment_.Get(name).value_or(""); }
  bool IsSet(const std::string& name) const { return environment_.Get(name).has_value(); }
  bool Has(const std::string& name) const { return !Text(name).empty(); }
  int Number(const std::string& name, int min, int max);
  std::vector<std::string> Nodes(const std::string& name);
  // Where the variable is there, it counts what `list` names.
  void Expect(const std::string& name, int count, const std::string& list);
  void Fail(const std::string& name, absl::string_view why);
  const absl::Status& status() const { return status_; }

 private:
  const Environment& environment_;
  absl::Status status_;
};

// A port for jobs that were given none: below the kernel's own choice (32768 and up), above what
// services like to have, and for two jobs on one node hardly the same.
int PortFor(const std::string& id);

// The most nodes that --nnodes asks for; nothing, where it is not given or no range.
std::optional<int> LargestSize(const GivenOptions& given);

// The workers of a node: one for each GPU that the task may use, else `count_variable`, else one.
GivenValue WorkersOf(const ClusterVariables& variables, const std::string& count_variable);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_CLUSTER_JOB_H_
