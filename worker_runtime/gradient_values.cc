#include "worker_runtime/gradient_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "rendezvous/base/check.h"
#include "worker_runtime/comm/kernels.h"

namespace ddp::internal {
namespace {

// Elements of 16 bits that are widened at a time.
constexpr size_t kBlock = 1024;
// Sums that do not wait for each other.
constexpr size_t kLanes = 8;

template <typename T, typename Term>
double Sum(const T* values, size_t count, Term term) {
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(values[i + lane]);
  }
  for (; i < count; ++i) sums[0] += term(values[i]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

template <typename T>
double SumOfPowers(const T* values, size_t count, double order) {
  if (order == 2) {
    return Sum(values, count, [](T value) {
      const double wide = value;
      return wide * wide;
    });
  }
  if (order == 1) return Sum(values, count, [](T value) { return std::fabs(double{value}); });
  return Sum(values, count, [order](T value) { return std::pow(std::fabs(double{value}), order); });
}

template <typename T>
double Largest(const T* values, size_t count) {
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double size = std::fabs(double{values[i]});
    if (size > largest || std::isnan(size)) largest = size;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// Calls `body(elements, count)` with all values as float or double, in pieces where they have to be
// widened.
template <typename Body>
void Read(const GradientValues& values, Body body) {
  DDP_CHECK(IsFloat(values.dtype));
  if (values.dtype == DType::kFloat64) {
    return body(static_cast<const double*>(values.data), values.count);
  }
  if (values.dtype == DType::kFloat32) {
    return body(static_cast<const float*>(values.data), values.count);
  }
  std::array<float, kBlock> wide;
  for (size_t begin = 0; begin < values.count; begin += kBlock) {
    const size_t count = std::min(kBlock, values.count - begin);
    BestKernels().load(values.dtype, static_cast<const char*>(values.data) + begin * 2, wide.data(),
                       count);
    body(static_cast<const float*>(wide.data()), count);
  }
}

template <typename T>
void Multiply(T* values, size_t count, T factor) {
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

class HostArithmetic final : public GradientArithmetic {
 public:
  absl::Status Prepare() override { return absl::OkStatus(); }

  absl::Status SetToZero(const GradientValues& values, Stream) override {
    if (values.count != 0) std::memset(values.data, 0, values.count * SizeOf(values.dtype));
    return absl::OkStatus();
  }

  absl::Status Scale(const GradientValues& values, double factor, Stream) override {
    DDP_CHECK(IsFloat(values.dtype));
    const float narrow = static_cast<float>(factor);
    if (values.dtype == DType::kFloat64) {
      Multiply(static_cast<double*>(values.data), values.count, factor);
      return absl::OkStatus();
    }
    if (values.dtype == DType::kFloat32) {
      Multiply(static_cast<float*>(values.data), values.count, narrow);
      return absl::OkStatus();
    }
    std::array<float, kBlock> wide;
    for (size_t begin = 0; begin < values.count; begin += kBlock) {
      const size_t count = std::min(kBlock, values.count - begin);
      char* piece = static_cast<char*>(values.data) + begin * 2;
      BestKernels().load(values.dtype, piece, wide.data(), count);
      Multiply(wide.data(), count, narrow);
      BestKernels().store(values.dtype, wide.data(), piece, count, /*divisor=*/1);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> PartOfNorm(std::span<const GradientValues> gradients, double norm_type,
                                    Stream) override {
    double part = 0;
    for (const GradientValues& values : gradients) {
      Read(values, [&](const auto* elements, size_t count) {
        if (!std::isinf(norm_type)) {
          part += SumOfPowers(elements, count, norm_type);
          return;
        }
        const double largest = Largest(elements, count);
        if (!(largest <= part) && !std::isnan(part)) part = largest;
      });
    }
    return part;
  }

  absl::StatusOr<int64_t> CountNonFinite(std::span<const GradientValues> gradients,
                                         Stream) override {
    int64_t found = 0;
    for (const GradientValues& values : gradients) {
      Read(values, [&found](const auto* elements, size_t count) {
        for (size_t i = 0; i < count; ++i) found += std::isfinite(elements[i]) ? 0 : 1;
      });
    }
    return found;
  }
};

}  // namespace

bool IsFloat(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
      return true;
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kInt8:
      return false;
  }
  return false;
}

double NormOf(double part, double norm_type) {
  if (std::isinf(norm_type) || norm_type == 1) return part;
  return norm_type == 2 ? std::sqrt(part) : std::pow(part, 1 / norm_type);
}

GradientArithmetic& ArithmeticFor(Communicator& communicator) {
  static GradientArithmetic& host = *new HostArithmetic;  // used until the process ends
  GradientArithmetic* const on_device = communicator.gradient_arithmetic();
  return on_device == nullptr ? host : *on_device;
}

}  // namespace ddp::internal
