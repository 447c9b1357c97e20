// What a ddp_model holds.
#ifndef DDPRUN_WORKER_RUNTIME_C_FACE_MODEL_H_
#define DDPRUN_WORKER_RUNTIME_C_FACE_MODEL_H_

#include <optional>

#include "absl/status/status.h"
#include "ddp/c.h"
#include "ddp/distributed_data_parallel.h"
#include "worker_runtime/c_face/convert.h"

struct ddp_model {
  ddp_model(ddp::Communicator& communicator, const ddp::DistributedDataParallelOptions& options)
      : ddp(communicator, options) {}

  ddp::DistributedDataParallel ddp;
  std::optional<ddp::Stream> stream;  // of its calls, once the program has named one
  std::optional<ddp::DistributedDataParallel::NoSyncGuard> no_sync;  // while passes are local
  std::optional<ddp::DistributedDataParallel::JoinGuard> join;       // until it is waited for
};

namespace ddp::internal {

// Calls `use(ddp)`, which returns a Status, for a function of this model.
template <typename Use>
ddp_code Used(const char* call, ddp_model* model, const Use& use) {
  return Guarded([&]() -> absl::Status {
    absl::Status status = CheckPointers(call, {{"model", model}});
    return status.ok() ? use(model->ddp) : status;
  });
}

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_C_FACE_MODEL_H_
