// A device of DataParallel, the CPU or a GPU: its memory, and what is copied and summed there.
#ifndef DDPRUN_WORKER_RUNTIME_DATA_PARALLEL_REPLICA_DEVICE_H_
#define DDPRUN_WORKER_RUNTIME_DATA_PARALLEL_REPLICA_DEVICE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp::internal {

// Used on the thread of the device, but for construction, stream() and the end. What is asked for
// may go on behind a call; after Wait() it is done.
class ReplicaDevice {
 public:
  // Memory of a device of the same kind.
  struct Place {
    const ReplicaDevice* device;
    const void* data;
  };

  virtual ~ReplicaDevice() = default;
  // Once, before all else.
  virtual absl::Status Enter() = 0;
  // Zeroed, at a multiple of 64 bytes; freed with the device.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  // Whether `memory` is this device's own. False: the host's, from which Copy can copy as well.
  // InvalidArgument: neither.
  virtual absl::StatusOr<bool> Owns(const void* memory) const = 0;
  virtual absl::Status Zero(void* memory, size_t bytes) = 0;
  // To memory of this device; from.device null: from the host's memory.
  virtual absl::Status Copy(void* to, Place from, size_t bytes) = 0;
  // sum[i] += parts[0][i] + parts[1][i] + ...: in that order, rounded once. `sum` is this device's,
  // each part another's.
  virtual absl::Status Add(DType dtype, void* sum, std::span<const Place> parts, size_t count) = 0;
  virtual absl::Status Wait() = 0;
  // On which a program puts its own work; null where there are none.
  virtual Stream stream() const { return nullptr; }
};

using ReplicaDevices = std::vector<std::unique_ptr<ReplicaDevice>>;

// Shares of this machine's cores: one memory. ResourceExhausted: `bytes` in all are not free.
absl::StatusOr<ReplicaDevices> MakeHostDevices(int count, size_t bytes);
// The first `count` GPUs that CUDA shows. FailedPrecondition naming both numbers where it shows
// fewer; otherwise what keeps the driver from working.
absl::StatusOr<ReplicaDevices> OpenCudaDevices(int count);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_DATA_PARALLEL_REPLICA_DEVICE_H_
