#include "worker_runtime/comm/nccl/device_casts.h"

#include <utility>

#include "worker_runtime/gpu/casts.h"

namespace ddp::internal {
namespace {

class DeviceCasts final : public HalfCasts {
 public:
  DeviceCasts(const Device& device, DType type, std::unique_ptr<Casts> casts)
      : device_(device), type_(type), casts_(std::move(casts)) {}
  // The module is unloaded in its own context.
  ~DeviceCasts() override {
    const CurrentDevice current(device_);
    casts_.reset();
  }

  absl::Status Narrow(const float* input, void* output, size_t count, int divisor,
                      Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    return casts_->Narrow(type_, input, static_cast<uint16_t*>(output), static_cast<int64_t>(count),
                          1.0f / static_cast<float>(divisor), static_cast<CudaStream>(stream));
  }
  absl::Status Widen(const void* input, float* output, size_t count, Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    return casts_->Widen(type_, static_cast<const uint16_t*>(input), output,
                         static_cast<int64_t>(count), static_cast<CudaStream>(stream));
  }

 private:
  const Device& device_;
  const DType type_;
  std::unique_ptr<Casts> casts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HalfCasts>> MakeDeviceCasts(const Device& device, DType type) {
  const CurrentDevice current(device);
  if (!current.status().ok()) return current.status();
  absl::StatusOr<std::unique_ptr<Casts>> casts = Casts::Load(device.api());
  if (!casts.ok()) return casts.status();
  return std::make_unique<DeviceCasts>(device, type, *std::move(casts));
}

}  // namespace ddp::internal
