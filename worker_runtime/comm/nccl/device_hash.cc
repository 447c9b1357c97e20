#include "worker_runtime/comm/nccl/device_hash.h"

#include <utility>

#include "worker_runtime/gpu/hashes.h"

namespace ddp::internal {
namespace {

class DeviceHash final : public TensorHash {
 public:
  DeviceHash(const Device& device, const LaunchQueue& queue, std::unique_ptr<Hashes> hashes)
      : device_(device), queue_(queue), hashes_(std::move(hashes)) {}
  // The module is unloaded in its own context.
  ~DeviceHash() override {
    const CurrentDevice current(device_);
    hashes_.reset();
  }

  absl::StatusOr<std::vector<int64_t>> Of(std::span<const Tensor> tensors, Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    return hashes_->Of(tensors, static_cast<CudaStream>(stream), queue_.timeout());
  }

 private:
  const Device& device_;
  const LaunchQueue& queue_;
  std::unique_ptr<Hashes> hashes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorHash>> MakeDeviceHash(const Device& device,
                                                           const LaunchQueue& queue) {
  const CurrentDevice current(device);
  if (!current.status().ok()) return current.status();
  absl::StatusOr<std::unique_ptr<Hashes>> hashes = Hashes::Load(device.api());
  if (!hashes.ok()) return hashes.status();
  return std::make_unique<DeviceHash>(device, queue, *std::move(hashes));
}

}  // namespace ddp::internal
