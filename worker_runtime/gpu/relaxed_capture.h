// Asks the CUDA driver while other threads capture a stream.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_RELAXED_CAPTURE_H_
#define DDPRUN_WORKER_RUNTIME_GPU_RELAXED_CAPTURE_H_

#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// A thread that captures a stream in the global mode, as frameworks do by default, loses its
// capture when any other thread of the process asks for an event or allocates: the driver takes it
// for a part of the step that the graph would miss. While this lives, what its own thread calls is
// no such part. It does not allow what the captured streams themselves do not.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaApi& api)
      : api_(api), is_exchanged_(api.cuThreadExchangeStreamCaptureMode(&mode_) == kCudaSuccess) {}
  ~RelaxedCapture() {
    if (is_exchanged_) api_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaApi& api_;
  int mode_ = kCudaCaptureModeRelaxed;  // then what the thread's was
  const bool is_exchanged_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_RELAXED_CAPTURE_H_
