#include "worker_runtime/comm/nccl/gpu_timer.h"

#include <utility>

#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {

class GpuMoment final : public DeviceMoment {
 public:
  GpuMoment(const GpuTimer& timer, CudaEvent event)
      : timer_(timer), pool_(timer.pool_), event_(event) {}
  ~GpuMoment() override { pool_->GiveBack(event_); }
  GpuMoment(const GpuMoment&) = delete;
  GpuMoment& operator=(const GpuMoment&) = delete;

  std::optional<Work::Clock::time_point> Time() override {
    if (!timer_.is_healthy_()) return std::nullopt;
    const CurrentDevice current(timer_.device_);
    const CudaApi& api = timer_.device_.api();
    const RelaxedCapture relaxed(api);
    if (!current.status().ok() || api.cuEventQuery(event_) != kCudaSuccess) return std::nullopt;
    const Work::Clock::time_point at = timer_.clock_.TimeOf(event_);
    return at != Work::Clock::time_point() ? std::optional(at) : std::nullopt;
  }

 private:
  const GpuTimer& timer_;
  const std::shared_ptr<EventPool> pool_;  // lives as long as an event of it is out
  const CudaEvent event_;
};

std::unique_ptr<DeviceMoment> GpuTimer::Mark(Stream stream) {
  if (!is_healthy_()) return nullptr;
  const CurrentDevice current(device_);
  if (!current.status().ok()) return nullptr;
  const CudaApi& api = device_.api();
  const auto on = static_cast<CudaStream>(stream);
  int state = kCudaCaptureStatusNone;
  if (api.cuStreamIsCapturing(on, &state) != kCudaSuccess || state != kCudaCaptureStatusNone) {
    return nullptr;
  }
  const absl::StatusOr<CudaEvent> event = pool_->Take();
  if (!event.ok()) return nullptr;
  auto moment = std::make_unique<GpuMoment>(*this, *event);
  if (api.cuEventRecord(*event, on) != kCudaSuccess) return nullptr;
  return moment;
}

std::optional<double> GpuTimer::UtilisationSince(std::chrono::system_clock::time_point since) {
  if (!is_healthy_()) return std::nullopt;
  if (!utilisation_) utilisation_ = GpuUtilisation::Open(device_.uuid());
  if (!utilisation_->ok()) return std::nullopt;
  const absl::StatusOr<double> share = (*utilisation_)->Since(since);
  return share.ok() ? std::optional(*share) : std::nullopt;
}

}  // namespace ddp::internal
