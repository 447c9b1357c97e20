#include "worker_runtime/gpu/event_pool.h"

#include <utility>

namespace ddp::internal {

void EventPool::Close() {
  std::lock_guard lock(mutex_);
  if (std::exchange(is_abandoned_, true)) return;
  const CurrentDevice current(device_);
  for (CudaEvent event : free_) device_.api().cuEventDestroy(event);
  free_.clear();
}

absl::StatusOr<CudaEvent> EventPool::Take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      CudaEvent event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  CudaEvent event = nullptr;
  const CudaResult result = device_.api().cuEventCreate(&event, kCudaEventDefault);
  if (result != kCudaSuccess) return CudaStatus(device_.api(), "cuEventCreate", result);
  return event;
}

void EventPool::GiveBack(CudaEvent event) {
  std::lock_guard lock(mutex_);
  free_.push_back(event);
}

void EventPool::Abandon() {
  std::lock_guard lock(mutex_);
  is_abandoned_ = true;
}

}  // namespace ddp::internal
