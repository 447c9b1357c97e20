// Casts for gradients that travel in 16 bits.
#ifndef DDPRUN_WORKER_RUNTIME_HALF_CASTS_H_
#define DDPRUN_WORKER_RUNTIME_HALF_CASTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"

namespace ddp::internal {

// Collective: for the memory of `communicator`, on all ranks or on none. `type` is float16 or
// bfloat16. An error is the same on every rank and names the first that cannot, and why.
absl::StatusOr<std::unique_ptr<HalfCasts>> MakeHalfCasts(Communicator& communicator, DType type);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_HALF_CASTS_H_
