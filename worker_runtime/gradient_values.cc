#include "worker_runtime/gradient_values.h"

#include <algorithm>
#include <array>
#include <cmath>

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
      return false;
  }
  return false;
}

void NormSum::Add(const GradientValues& values) {
  Read(values, [this](const auto* elements, size_t count) {
    if (!std::isinf(norm_type_)) {
      sum_ += SumOfPowers(elements, count, norm_type_);
      return;
    }
    const double largest = Largest(elements, count);
    if (!(largest <= sum_) && !std::isnan(sum_)) sum_ = largest;
  });
}

double NormSum::Norm() const {
  if (std::isinf(norm_type_) || norm_type_ == 1) return sum_;
  return norm_type_ == 2 ? std::sqrt(sum_) : std::pow(sum_, 1 / norm_type_);
}

void Scale(const GradientValues& values, double factor) {
  DDP_CHECK(IsFloat(values.dtype));
  const float narrow = static_cast<float>(factor);
  if (values.dtype == DType::kFloat64) {
    return Multiply(static_cast<double*>(values.data), values.count, factor);
  }
  if (values.dtype == DType::kFloat32) {
    return Multiply(static_cast<float*>(values.data), values.count, narrow);
  }
  std::array<float, kBlock> wide;
  for (size_t begin = 0; begin < values.count; begin += kBlock) {
    const size_t count = std::min(kBlock, values.count - begin);
    char* piece = static_cast<char*>(values.data) + begin * 2;
    BestKernels().load(values.dtype, piece, wide.data(), count);
    Multiply(wide.data(), count, narrow);
    BestKernels().store(values.dtype, wide.data(), piece, count, /*divisor=*/1);
  }
}

size_t CountNonFinite(const GradientValues& values) {
  size_t found = 0;
  Read(values, [&found](const auto* elements, size_t count) {
    for (size_t i = 0; i < count; ++i) found += std::isfinite(elements[i]) ? 0 : 1;
  });
  return found;
}

}  // namespace ddp::internal
