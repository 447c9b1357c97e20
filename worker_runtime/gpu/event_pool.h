// CUDA events, used again and again: making one costs microseconds, and destroying one can hang
// behind a collective that does.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_EVENT_POOL_H_
#define DDPRUN_WORKER_RUNTIME_GPU_EVENT_POOL_H_

#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// Any thread with the device current. The events carry times.
class EventPool {
 public:
  // REQUIRES: `device` outlives this.
  explicit EventPool(const Device& device) : device_(device) {}
  ~EventPool() { Close(); }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  absl::StatusOr<CudaEvent> Take();
  void GiveBack(CudaEvent event);
  // The device may hang: destroys nothing any more.
  void Abandon();
  // The device is about to go, or to be left: destroys what was given back, and leaks the rest.
  void Close();

 private:
  const Device& device_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;  // guarded by mutex_
  bool is_abandoned_ = false;    // guarded by mutex_
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_EVENT_POOL_H_
