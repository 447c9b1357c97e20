// Do all ranks train the same model?
#ifndef DDPRUN_WORKER_RUNTIME_PARAMETER_CHECK_H_
#define DDPRUN_WORKER_RUNTIME_PARAMETER_CHECK_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddp/communicator.h"
#include "worker_runtime/bucketizer.h"

namespace ddp::internal {

struct ParameterDescription {
  std::string name;
  size_t count = 0;
  DType dtype = DType::kFloat32;
};

// What all ranks must have chosen alike for their gradients.
struct GradientChoices {
  BucketLimits limits;
  DType wire_type = DType::kFloat32;  // of float32 gradients
  bool find_unused_parameters = false;
  bool broadcast_buffers = true;
  bool static_graph = false;
  bool adopts_gradients = false;
  bool rebuild_buckets = false;
  bool shard_gradients = false;
};

// Collective. OK when all ranks registered the same parameters (and buffers, behind them) in the
// same order and made the same choices: one all-gather of 48 bytes a rank. Otherwise
// InvalidArgument, the same message on every rank, names the first parameter that differs, the
// rank, and what both sides have.
absl::Status CheckSameParameters(Communicator& communicator,
                                 const std::vector<ParameterDescription>& parameters,
                                 const GradientChoices& choices);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_PARAMETER_CHECK_H_
