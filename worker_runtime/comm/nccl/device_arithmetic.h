// Arithmetic on gradients on a communicator's GPU.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_ARITHMETIC_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_ARITHMETIC_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "worker_runtime/comm/gradient_arithmetic.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// `device` outlives it, `timeout` bounds each wait. Fails when the driver cannot compile or load
// the kernels.
absl::StatusOr<std::unique_ptr<GradientArithmetic>> MakeDeviceArithmetic(
    const Device& device, std::chrono::milliseconds timeout);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_ARITHMETIC_H_
