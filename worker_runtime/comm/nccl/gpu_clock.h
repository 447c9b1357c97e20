// When things happened on a device, in the host's time.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_CLOCK_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_CLOCK_H_

#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// Events only tell how many milliseconds lie between two of them, as a float: half a microsecond
// over seconds, but a quarter of a millisecond over an hour. So times are counted from an anchor,
// an event whose host time is known, which moves on with the operations. The error of the first
// anchor (some microseconds) stays the same for all. Any thread.
class GpuClock {
 public:
  // An event with its host time. `owner` keeps the event from being recorded anew.
  struct Anchor {
    CudaEvent event = nullptr;
    Clock::time_point at;
    std::shared_ptr<const void> owner;
  };

  explicit GpuClock(const CudaApi& api) : api_(api) {}

  void Set(Anchor anchor);
  // When `event`, which is complete, happened. REQUIRES: Set() was called.
  Clock::time_point TimeOf(CudaEvent event) const;
  // Takes the anchor if the present one is older than a second.
  void MoveOn(Anchor anchor);

 private:
  const CudaApi& api_;
  mutable std::mutex mutex_;
  Anchor anchor_;  // guarded by mutex_
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_CLOCK_H_
