// One GPU as this process uses it.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_DEVICE_H_
#define DDPRUN_WORKER_RUNTIME_GPU_DEVICE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// Initialises the driver and counts the GPUs that CUDA_VISIBLE_DEVICES leaves. FailedPrecondition
// with the driver's words when it cannot work; 0 GPUs is no error.
absl::StatusOr<int> CountGpus(const CudaApi& api);

// Which of `count` GPUs belongs to a rank: its own by local rank, or the only one there is, as
// where a scheduler shows each task its own. FailedPrecondition naming the variable to look at when
// there is none.
absl::StatusOr<int> OrdinalFor(int local_rank, int count);

// The device's primary context, which frameworks and NCCL use as well, retained while this lives.
class Device {
 public:
  // REQUIRES: CountGpus succeeded, 0 <= ordinal < count; `api` outlives this.
  static absl::StatusOr<std::unique_ptr<Device>> Open(const CudaApi& api, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const CudaApi& api() const { return api_; }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }  // "NVIDIA H200"
  const std::string& uuid() const { return uuid_; }  // "GPU-8b0d19a4-..." or "MIG-..."

  // The device may hang, and the process is about to end: it is not released.
  void Abandon() { is_abandoned_ = true; }

  // Calls `free` on a thread of its own, where the device is current and nobody's capture is lost.
  // The driver may wait in it for all that is on the device, without a deadline. DeadlineExceeded
  // after `patience`: then the thread goes on, and what `free` refers to must live until the
  // process ends.
  absl::Status Free(std::function<absl::Status()> free, std::chrono::milliseconds patience) const;

  // Lets this device reach the other's memory without a way through the host's, where the machine
  // can; elsewhere copies between them take that way.
  void ReachDirectly(const Device& other) const;

  CudaContext context() const { return context_; }

  // Makes the context the calling thread's own for good: for threads that we start.
  absl::Status MakeCurrent() const;

 private:
  friend class CurrentDevice;
  Device(const CudaApi& api, int ordinal) : api_(api), ordinal_(ordinal) {}

  const CudaApi& api_;
  const int ordinal_;
  CudaDevice device_ = 0;
  CudaContext context_ = nullptr;
  bool is_abandoned_ = false;
  std::string name_;
  std::string uuid_;
};

// Makes a device's context current on this thread while it lives, and restores the caller's.
class CurrentDevice {
 public:
  explicit CurrentDevice(const Device& device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  const CudaApi& api_;
  CudaContext before_ = nullptr;
  bool must_restore_ = false;
  absl::Status status_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_DEVICE_H_
