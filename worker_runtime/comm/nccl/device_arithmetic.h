// Arithmetic on gradients on a communicator's GPU.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_ARITHMETIC_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_ARITHMETIC_H_

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/comm/gradient_arithmetic.h"
#include "worker_runtime/comm/nccl/launch_queue.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/values.h"

namespace ddp::internal {

// Waits as long as the group's operations do; where the group fails meanwhile, its error is the
// result: what a stream has then may be half of a reduction.
class DeviceArithmetic final : public GradientArithmetic {
 public:
  // Both outlive it.
  DeviceArithmetic(const Device& device, LaunchQueue& queue) : device_(device), queue_(queue) {}
  // The module is unloaded in its own context.
  ~DeviceArithmetic() override;
  // The device may hang, and the process is about to end: nothing is released.
  void Abandon() { (void)values_.release(); }

  absl::Status Prepare() override;
  absl::Status SetToZero(const GradientValues& values, Stream stream) override;
  absl::Status Scale(const GradientValues& values, double factor, Stream stream) override;
  absl::StatusOr<double> PartOfNorm(std::span<const GradientValues> gradients, double norm_type,
                                    Stream stream) override;
  absl::StatusOr<int64_t> CountNonFinite(std::span<const GradientValues> gradients,
                                         Stream stream) override;

 private:
  absl::StatusOr<double> Total(std::span<const GradientValues> gradients, ValueTerm term,
                               double order, Stream stream);

  const Device& device_;
  LaunchQueue& queue_;
  std::unique_ptr<Values> values_;  // null until it is needed
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_DEVICE_ARITHMETIC_H_
