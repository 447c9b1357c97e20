// The environment variables that NCCL reads at its start.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENVIRONMENT_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENVIRONMENT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ddp::internal {

// FailedPrecondition when NCCL_COMM_ID is set: NCCL then takes a public constant for the group's
// secret, and every group of the job takes the same address. Likewise with NCCL_COMM_BLOCKING=0:
// NCCL's calls return before they are done then, which the library does not follow.
absl::Status CheckNcclEnvironment();

// Sets, where the user has not: NCCL_SOCKET_IFNAME, so that NCCL uses the interface of `address`,
// which the other ranks reach, and not the first that it finds, but never the loopback interface
// where the group `spans_hosts`; NCCL_RAS_ADDR, so that two jobs on
// a host do not share the service behind NCCL's fixed port; NCCL_GRAPH_REGISTER=0, as registering
// what an operation uses while it is captured is an exchange of all ranks, in which they hang when
// one rank's step failed before that operation. Not safe while other threads read the environment.
void SetNcclEnvironment(const std::string& address, bool spans_hosts, uint16_t ras_port);

// A port of the loopback interface that was free a moment ago; 0 if there is none.
uint16_t FreeLoopbackPort();

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENVIRONMENT_H_
