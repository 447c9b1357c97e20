// Moments of a GPU's streams, by events.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_TIMER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_TIMER_H_

#include <functional>
#include <memory>
#include <optional>

#include "worker_runtime/comm/device_timer.h"
#include "worker_runtime/comm/nccl/gpu_clock.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/event_pool.h"
#include "worker_runtime/gpu/gpu_utilisation.h"

namespace ddp::internal {

// Borrows the device and the clock. Asks the driver nothing once `is_healthy` says no: it may hang.
class GpuTimer final : public DeviceTimer {
 public:
  GpuTimer(const Device& device, const GpuClock& clock, std::shared_ptr<EventPool> pool,
           std::function<bool()> is_healthy)
      : device_(device),
        clock_(clock),
        pool_(std::move(pool)),
        is_healthy_(std::move(is_healthy)) {}

  std::unique_ptr<DeviceMoment> Mark(Stream stream) override;
  std::optional<double> UtilisationSince(std::chrono::system_clock::time_point since) override;

 private:
  friend class GpuMoment;

  const Device& device_;
  const GpuClock& clock_;
  const std::shared_ptr<EventPool> pool_;
  const std::function<bool()> is_healthy_;
  std::optional<absl::StatusOr<GpuUtilisation>> utilisation_;  // none before it is asked for
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_TIMER_H_
