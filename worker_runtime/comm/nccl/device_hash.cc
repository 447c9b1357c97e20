#include "worker_runtime/comm/nccl/device_hash.h"

#include <utility>

#include "worker_runtime/gpu/hashes.h"

namespace ddp::internal {
namespace {

class DeviceHash final : public TensorHash {
 public:
  DeviceHash(const Device& device, std::unique_ptr<Hashes> hashes,
             std::chrono::milliseconds timeout)
      : device_(device), hashes_(std::move(hashes)), timeout_(timeout) {}
  // The module is unloaded in its own context.
  ~DeviceHash() override {
    const CurrentDevice current(device_);
    hashes_.reset();
  }

  absl::StatusOr<std::vector<int64_t>> Of(std::span<const Tensor> tensors, Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    return hashes_->Of(tensors, static_cast<CudaStream>(stream), timeout_);
  }

 private:
  const Device& device_;
  std::unique_ptr<Hashes> hashes_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorHash>> MakeDeviceHash(const Device& device,
                                                           std::chrono::milliseconds timeout) {
  const CurrentDevice current(device);
  if (!current.status().ok()) return current.status();
  absl::StatusOr<std::unique_ptr<Hashes>> hashes = Hashes::Load(device.api());
  if (!hashes.ok()) return hashes.status();
  return std::make_unique<DeviceHash>(device, *std::move(hashes), timeout);
}

}  // namespace ddp::internal
