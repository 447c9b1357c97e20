// A step of Slurm, by its variables. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_SLURM_STEP_H_
#define DDPRUN_LAUNCHER_CLI_SLURM_STEP_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/cli/cluster_job.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// "12.0", the job and its step. Nothing outside of a step, in Slurm's own steps and in those of
// heterogeneous jobs, whose variables count in several ways.
std::optional<std::string> SlurmStep(const Environment& environment);

// Of variables that a job has from a step in which it was submitted; such a step counts as none.
// Empty: there are none.
std::string StaleStepWarning(const Environment& environment);

// In a batch script of several nodes: srun would start the command on all of them. Empty: it is
// none, or has one node.
std::string NoStepWarning(const Environment& environment);

// Whose agent this is, for the coordinator, whatever options say: of a job, and of a step where
// that has room for all of `max_nodes`. A job of more nodes than the step's is one of several steps
// (`srun -w n1 ... & srun -w n2 ... &`), and a node may come back in another step.
rendezvous::ClusterPlace SlurmPlace(const Environment& environment, int max_nodes);

// REQUIRES: SlurmStep.
absl::StatusOr<ClusterJob> ReadSlurm(const Environment& environment, const GivenOptions& given);

// An error where --rdzv_endpoint names a node of the job that is none of the step: it cannot host
// this step's rendezvous.
absl::Status CheckSlurmEndpoint(const Environment& environment, const GivenOptions& given);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_SLURM_STEP_H_
