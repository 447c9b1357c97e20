#include "worker_runtime/comm/nccl/device_arithmetic.h"

#include <cmath>
#include <utility>

#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {

DeviceArithmetic::~DeviceArithmetic() {
  if (values_ == nullptr) return;
  const CurrentDevice current(device_);
  values_.reset();
}

absl::Status DeviceArithmetic::Prepare() {
  if (values_ != nullptr) return absl::OkStatus();
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  const RelaxedCapture relaxed(device_.api());
  absl::StatusOr<std::unique_ptr<Values>> values = Values::Load(device_.api());
  if (!values.ok()) return values.status();
  values_ = *std::move(values);
  return absl::OkStatus();
}

absl::Status DeviceArithmetic::SetToZero(const GradientValues& values, Stream stream) {
  const CurrentDevice current(device_);
  if (!current.status().ok() || values.count == 0) return current.status();
  queue_.NoteCaller(static_cast<CudaStream>(stream));
  return Gpu(device_.api())
      .Fill("set gradients to 0", values.data, 0, values.count * SizeOf(values.dtype), stream);
}

absl::Status DeviceArithmetic::Scale(const GradientValues& values, double factor, Stream stream) {
  if (absl::Status status = Prepare(); !status.ok()) return status;
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  const auto on = static_cast<CudaStream>(stream);
  queue_.NoteCaller(on);
  return values_->Scale(values.dtype, values.data, static_cast<int64_t>(values.count), factor, on);
}

absl::StatusOr<double> DeviceArithmetic::PartOfNorm(std::span<const GradientValues> gradients,
                                                    double norm_type, Stream stream) {
  const ValueTerm term = std::isinf(norm_type) ? ValueTerm::kLargest
                         : norm_type == 2      ? ValueTerm::kSquare
                         : norm_type == 1      ? ValueTerm::kMagnitude
                                               : ValueTerm::kPower;
  return Total(gradients, term, norm_type, stream);
}

absl::StatusOr<int64_t> DeviceArithmetic::CountNonFinite(std::span<const GradientValues> gradients,
                                                         Stream stream) {
  // Exact up to 2^53.
  const absl::StatusOr<double> count = Total(gradients, ValueTerm::kNonFinite, 0, stream);
  if (!count.ok()) return count.status();
  return static_cast<int64_t>(*count);
}

absl::StatusOr<double> DeviceArithmetic::Total(std::span<const GradientValues> gradients,
                                               ValueTerm term, double order, Stream stream) {
  if (absl::Status status = Prepare(); !status.ok()) return status;
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  const auto on = static_cast<CudaStream>(stream);
  queue_.NoteCaller(on);
  absl::Status status = values_->Clear(on);
  for (const GradientValues& each : gradients) {
    if (!status.ok()) return status;
    status = values_->Add(each.dtype, each.data, static_cast<int64_t>(each.count), term, order, on);
  }
  if (!status.ok()) return status;
  absl::StatusOr<double> total = values_->Total(term, on, queue_.timeout());
  // The kernels may still use the sums; the next call gets others.
  if (!total.ok()) Abandon();
  if (absl::Status error = queue_.error(); !error.ok()) return error;
  return total;
}

}  // namespace ddp::internal
