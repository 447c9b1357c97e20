// The network where the group trains.
#ifndef DDPRUN_EXAMPLES_TRAIN_MAKE_NETWORK_H_
#define DDPRUN_EXAMPLES_TRAIN_MAKE_NETWORK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ddp/process_group.h"
#include "examples/train/network.h"
#include "examples/train/options.h"

namespace train {

// On this rank's GPU if the communicator reduces there, which becomes current on this thread; on
// the CPU otherwise. Errors: what the GPU or cuBLAS lacks.
absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const Options& options,
                                                     const ddp::ProcessGroup& group, int inputs);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_MAKE_NETWORK_H_
