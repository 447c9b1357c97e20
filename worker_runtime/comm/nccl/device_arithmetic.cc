#include "worker_runtime/comm/nccl/device_arithmetic.h"

#include <cmath>
#include <utility>

#include "worker_runtime/gpu/values.h"

namespace ddp::internal {
namespace {

class DeviceArithmetic final : public GradientArithmetic {
 public:
  DeviceArithmetic(const Device& device, std::unique_ptr<Values> values,
                   std::chrono::milliseconds timeout)
      : device_(device), values_(std::move(values)), timeout_(timeout) {}
  // The module is unloaded in its own context.
  ~DeviceArithmetic() override {
    const CurrentDevice current(device_);
    values_.reset();
  }

  absl::Status SetToZero(const GradientValues& values, Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok() || values.count == 0) return current.status();
    return Gpu(device_.api())
        .Fill("set gradients to 0", values.data, 0, values.count * SizeOf(values.dtype), stream);
  }

  absl::Status Scale(const GradientValues& values, double factor, Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    return values_->Scale(values.dtype, values.data, static_cast<int64_t>(values.count), factor,
                          static_cast<CudaStream>(stream));
  }

  absl::StatusOr<double> PartOfNorm(std::span<const GradientValues> gradients, double norm_type,
                                    Stream stream) override {
    const ValueTerm term = std::isinf(norm_type) ? ValueTerm::kLargest
                           : norm_type == 2      ? ValueTerm::kSquare
                           : norm_type == 1      ? ValueTerm::kMagnitude
                                                 : ValueTerm::kPower;
    return Total(gradients, term, norm_type, stream);
  }

  absl::StatusOr<int64_t> CountNonFinite(std::span<const GradientValues> gradients,
                                         Stream stream) override {
    // Exact up to 2^53.
    const absl::StatusOr<double> count = Total(gradients, ValueTerm::kNonFinite, 0, stream);
    if (!count.ok()) return count.status();
    return static_cast<int64_t>(*count);
  }

 private:
  absl::StatusOr<double> Total(std::span<const GradientValues> gradients, ValueTerm term,
                               double order, Stream stream) {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    const auto on = static_cast<CudaStream>(stream);
    absl::Status status = values_->Clear(on);
    for (const GradientValues& each : gradients) {
      if (!status.ok()) return status;
      status =
          values_->Add(each.dtype, each.data, static_cast<int64_t>(each.count), term, order, on);
    }
    if (!status.ok()) return status;
    return values_->Total(term, on, timeout_);
  }

  const Device& device_;
  std::unique_ptr<Values> values_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientArithmetic>> MakeDeviceArithmetic(
    const Device& device, std::chrono::milliseconds timeout) {
  const CurrentDevice current(device);
  if (!current.status().ok()) return current.status();
  absl::StatusOr<std::unique_ptr<Values>> values = Values::Load(device.api());
  if (!values.ok()) return values.status();
  return std::make_unique<DeviceArithmetic>(device, *std::move(values), timeout);
}

}  // namespace ddp::internal
