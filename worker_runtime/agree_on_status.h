// What one rank cannot do, no rank does.
#ifndef DDPRUN_WORKER_RUNTIME_AGREE_ON_STATUS_H_
#define DDPRUN_WORKER_RUNTIME_AGREE_ON_STATUS_H_

#include "absl/status/status.h"
#include "ddp/communicator.h"

namespace ddp::internal {

// Collective over a communicator for host memory: every rank gets the status of the first rank for
// which it is not OK, its message cut after 1000 bytes. Otherwise OK, or the communicator's error.
absl::Status AgreeOnStatus(Communicator& communicator, const absl::Status& mine);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_AGREE_ON_STATUS_H_
