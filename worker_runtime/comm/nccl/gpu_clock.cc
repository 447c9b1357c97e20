#include "worker_runtime/comm/nccl/gpu_clock.h"

#include <chrono>
#include <utility>

namespace ddp::internal {

void GpuClock::Set(Anchor anchor) {
  std::lock_guard lock(mutex_);
  anchor_ = std::move(anchor);
}

Clock::time_point GpuClock::TimeOf(CudaEvent event) const {
  Anchor anchor;
  {
    std::lock_guard lock(mutex_);
    anchor = anchor_;  // its owner keeps it from being recorded anew
  }
  float milliseconds = 0;
  if (api_.cuEventElapsedTime(&milliseconds, anchor.event, event) != kCudaSuccess) return {};
  return anchor.at + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double, std::milli>(milliseconds));
}

void GpuClock::MoveOn(Anchor anchor) {
  std::lock_guard lock(mutex_);
  if (anchor.at - anchor_.at > std::chrono::seconds(1)) anchor_ = std::move(anchor);
}

}  // namespace ddp::internal
