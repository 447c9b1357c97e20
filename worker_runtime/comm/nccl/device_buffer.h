// Memory of a GPU as a Buffer.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_BUFFER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_BUFFER_H_

#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/comm/nccl/nccl_communication.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// Zeroed. With `communication` the memory comes from ncclMemAlloc and is registered with it, which
// every rank must do alike; null: plain memory. ResourceExhausted or NCCL's error when there is
// none. REQUIRES: nothing else calls NCCL now; device and communication outlive the buffer, the
// memory is in no operation when it goes. `nccl_mutex` is taken while the communicator is
// used. At its end the buffer waits for the device, 5 s at most, and is left to the end of the
// process where that takes longer; where `may_free` says no, the group has failed, the device may
// hang, and the memory is left to the end of the process.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateDeviceBuffer(const Device& device,
                                                             NcclCommunication* communication,
                                                             size_t bytes, std::mutex& nccl_mutex,
                                                             std::function<bool()> may_free);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_BUFFER_H_
