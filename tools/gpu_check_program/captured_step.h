// A step in a CUDA graph.
#ifndef DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CAPTURED_STEP_H_
#define DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CAPTURED_STEP_H_

#include <functional>

#include "absl/status/status.h"
#include "ddp/communicator.h"

namespace ddprun::gpu_check {

// Runs `step` as often as it must before it is captured, captures it on all ranks, and returns what
// replays it.
std::function<void()> CaptureStep(ddp::Communicator& communicator, ddp::Stream stream,
                                  const std::function<absl::Status()>& step);

}  // namespace ddprun::gpu_check

#endif  // DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CAPTURED_STEP_H_
