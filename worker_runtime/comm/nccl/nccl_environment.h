// The environment variables that NCCL reads at its start.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENVIRONMENT_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENVIRONMENT_H_

#include "absl/status/status.h"

namespace ddp::internal {

// FailedPrecondition when NCCL_COMM_ID is set: NCCL then takes a public constant for the group's
// secret, and every group of the job takes the same address. Likewise with NCCL_COMM_BLOCKING=0:
// NCCL's calls return before they are done then, which the library does not follow.
absl::Status CheckNcclEnvironment();

// Sets, where the user has not, NCCL_GRAPH_REGISTER=0: registering what an operation uses while it
// is captured is an exchange of all ranks, in which they hang when one rank's step failed before
// that operation. All else is left to NCCL, as in PyTorch. Not safe while other threads read the
// environment.
void SetNcclEnvironment();

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENVIRONMENT_H_
