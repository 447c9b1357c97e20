// Memory of a GPU as a Buffer.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_BUFFER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_BUFFER_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/comm/nccl/launch_queue.h"
#include "worker_runtime/comm/nccl/nccl_communication.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// What a buffer uses of its communicator, which outlives it.
struct BufferOwner {
  LaunchQueue& queue;
  // No: the group has failed and the device may hang, so that the memory is left to the end of the
  // process.
  std::function<bool()> may_free;
};

// Zeroed. With `communication` the memory comes from ncclMemAlloc and is registered with it, which
// every rank must do alike; null: plain memory. ResourceExhausted or NCCL's error when there is
// none; DeadlineExceeded when the device has not zeroed it within the group's timeout. REQUIRES:
// nothing else calls NCCL now; device and communication outlive the buffer, the memory is in no
// operation that is called after it goes. At its end the buffer waits, by events, for what is on
// the queue's stream and on those of its callers, 5 s at most, and is left to the end of the
// process where that takes longer.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateDeviceBuffer(const Device& device,
                                                             NcclCommunication* communication,
                                                             size_t bytes, BufferOwner owner);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_BUFFER_H_
