// Waits for a GPU, until a deadline.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_AWAIT_STREAM_H_
#define DDPRUN_WORKER_RUNTIME_GPU_AWAIT_STREAM_H_

#include <chrono>

#include "absl/status/status.h"
#include "ddp/gpu.h"

namespace ddp::internal {

// Waits until all that is queued on the stream is done: DeadlineExceeded after `timeout`, the
// driver's error if the device has one. `what` is for the sentence: "hash parameters".
absl::Status AwaitStream(const Gpu& gpu, const char* what, Stream stream,
                         std::chrono::milliseconds timeout);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_AWAIT_STREAM_H_
