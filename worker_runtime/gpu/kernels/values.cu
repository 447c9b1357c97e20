// Arithmetic on gradients: scaling, the parts of a norm, how many are not finite. Compiled to
// values.ptx by tools/gpu_kernels.
#include <math.h>
#include <stdint.h>

#include "worker_runtime/gpu/kernels/elements.h"
#include "worker_runtime/gpu/kernels/value_term.h"

namespace {

using ddp::internal::ValueTerm;

// The factor is rounded to what is computed with, as on the CPU.
template <typename Type, typename Bits>
__device__ void Scale(Bits* values, int64_t count, double factor) {
  const auto narrow = static_cast<decltype(Type::Load(Bits()))>(factor);
  for (int64_t i = First(); i < count; i += Stride()) {
    values[i] = Type::Store(Type::Load(values[i]) * narrow);
  }
}

// NaN stays, in a sum and as the largest.
__device__ double Combined(ValueTerm term, double sum, double more) {
  if (term != ValueTerm::kLargest) return sum + more;
  return more > sum || more != more ? more : sum;
}

__device__ double TermOf(ValueTerm term, double order, double value) {
  const double size = fabs(value);
  switch (term) {
    case ValueTerm::kSquare:
      return value * value;
    case ValueTerm::kPower:
      return pow(size, order);
    case ValueTerm::kNonFinite:
      return size - size == 0 ? 0 : 1;
    case ValueTerm::kMagnitude:
    case ValueTerm::kLargest:
      break;
  }
  return size;
}

// Each thread adds what it meets to a sum of its own, so that the same bits give the same sums.
template <typename Type, typename Bits>
__device__ void Add(const Bits* values, int64_t count, ValueTerm term, double order, double* sums) {
  const int64_t thread = First();
  if (thread >= count) return;
  double sum = sums[thread];
  for (int64_t i = thread; i < count; i += Stride()) {
    sum = Combined(term, sum, TermOf(term, order, Type::Load(values[i])));
  }
  sums[thread] = sum;
}

}  // namespace

#define DDPRUN_VALUES(name, Type)                                                              \
  extern "C" __global__ void scale_##name(Type::Bits* values, int64_t count, double factor) {  \
    Scale<Type>(values, count, factor);                                                        \
  }                                                                                            \
  extern "C" __global__ void add_##name(const Type::Bits* values, int64_t count, int64_t term, \
                                        double order, double* sums) {                          \
    Add<Type>(values, count, static_cast<ValueTerm>(term), order, sums);                       \
  }
DDPRUN_VALUES(float32, Same<float>)
DDPRUN_VALUES(float64, Same<double>)
DDPRUN_VALUES(float16, Half<Float16>)
DDPRUN_VALUES(bfloat16, Half<BFloat16>)
#undef DDPRUN_VALUES

// Of the `count` sums the first stay, as many as there are threads, and have the others.
extern "C" __global__ void fold_sums(double* sums, int64_t count, int64_t term) {
  double sum = sums[First()];
  for (int64_t i = First() + Stride(); i < count; i += Stride()) {
    sum = Combined(static_cast<ValueTerm>(term), sum, sums[i]);
  }
  sums[First()] = sum;
}
