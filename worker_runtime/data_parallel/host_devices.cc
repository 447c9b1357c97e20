// Devices that are shares of this machine's cores.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/free_memory.h"
#include "worker_runtime/comm/heap_buffer.h"
#include "worker_runtime/comm/kernels.h"
#include "worker_runtime/data_parallel/replica_device.h"

namespace ddp::internal {
namespace {

class HostDevice final : public ReplicaDevice {
 public:
  absl::Status Enter() override { return absl::OkStatus(); }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    absl::StatusOr<std::unique_ptr<Buffer>> buffer = AllocateHeapBuffer(bytes);
    if (!buffer.ok()) return buffer.status();
    return buffers_.emplace_back(*std::move(buffer))->data();
  }

  absl::StatusOr<bool> Owns(const void*) const override { return true; }

  absl::Status Zero(void* memory, size_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, bytes);
    return absl::OkStatus();
  }

  absl::Status Copy(void* to, Place from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from.data, bytes);
    return absl::OkStatus();
  }

  absl::Status Add(DType dtype, void* sum, std::span<const Place> parts, size_t count) override {
    std::vector<const void*> inputs = {sum};
    for (const Place& part : parts) inputs.push_back(part.data);
    BestKernels().reduce(ReduceOp::kSum, dtype, inputs.data(), static_cast<int>(inputs.size()),
                         &sum, 1, count, /*divisor=*/1);
    return absl::OkStatus();
  }

  absl::Status Wait() override { return absl::OkStatus(); }

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace

absl::StatusOr<ReplicaDevices> MakeHostDevices(int count, size_t bytes) {
  // All together: none takes its part before it is used.
  absl::Status room =
      CheckFreeMemory(bytes, absl::StrCat("DataParallel with ", count, " replicas"));
  if (!room.ok()) return room;
  ReplicaDevices devices;
  for (int i = 0; i < count; ++i) devices.push_back(std::make_unique<HostDevice>());
  return devices;
}

}  // namespace ddp::internal
