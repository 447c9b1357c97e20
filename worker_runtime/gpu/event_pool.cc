#include "worker_runtime/gpu/event_pool.h"

namespace ddp::internal {

EventPool::~EventPool() {
  if (is_abandoned_) return;
  const CurrentDevice current(device_);
  for (CudaEvent event : free_) device_.api().cuEventDestroy(event);
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
