// All ranks go on, or all end for the same reason.
#ifndef DDPRUN_EXAMPLES_TRAIN_AGREE_ON_STATUS_H_
#define DDPRUN_EXAMPLES_TRAIN_AGREE_ON_STATUS_H_

#include "absl/status/status.h"
#include "ddp/communicator.h"

namespace train {

// Collective. Ok when `mine` is on all ranks; otherwise the error of the first rank that has one,
// the same on all.
absl::Status AgreeOnStatus(ddp::Communicator& communicator, const absl::Status& mine);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_AGREE_ON_STATUS_H_
