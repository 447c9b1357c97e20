// What the environment of a cluster's manager says of this job: Slurm, Open MPI, PMIx, SkyPilot, an
// indexed Job of Kubernetes. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_CLUSTER_H_
#define DDPRUN_LAUNCHER_CLI_CLUSTER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

struct ClusterAnswer {
  // What stands in for options that were not given, each with the variable that it came from.
  GivenOptions options;
  std::string line;     // for the user, what was derived; empty: nothing was
  std::string warning;  // why nothing was, where it might be expected; empty: no such case
  // Where all nodes write into one output, the first one's name on the others: it tells the end.
  std::string report_node;
  // Where the nodes meet while others have the endpoint's port, and whether this node may host.
  std::vector<uint16_t> more_ports;
  bool is_head = true;
};

// Derives what `given` (the command line and the PET_ variables) leaves open: the number of nodes,
// this node's rank, where they meet, the job's id, the workers of each node. Nothing, when the user
// says where the nodes meet or who this one is (--standalone, an endpoint, --master_*, --node_rank,
// a backend other than c10d), switched it off (--no_cluster, DDPRUN_CLUSTER=none), types into a
// shell (`srun --pty bash` has a step's variables), or when a worker of ddprun asks. Where an
// environment does not name the meeting place, an endpoint alone switches off nothing.
//
// An error is InvalidArgument: variables that contradict what was given or each other, or something
// that no variable tells and the user has to. What all tasks of a Slurm step find alike is told by
// the first of them; the others get an empty message.
absl::StatusOr<ClusterAnswer> AskCluster(const Environment& environment, const GivenOptions& given);

// Where the manager has placed this agent, for the coordinator of a job of at most `max_nodes`;
// whatever options say, as they may say it wrong.
rendezvous::ClusterPlace PlaceInCluster(const Environment& environment, int max_nodes);

// Of workers that share fewer CPUs than they are, because Slurm was not asked for more. Empty:
// none.
std::string CpuWarning(const Environment& environment, const LaunchConfig& config);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_CLUSTER_H_
