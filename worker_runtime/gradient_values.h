// Arithmetic on the values of gradients in host memory.
#ifndef DDPRUN_WORKER_RUNTIME_GRADIENT_VALUES_H_
#define DDPRUN_WORKER_RUNTIME_GRADIENT_VALUES_H_

#include <cstddef>

#include "ddp/dtype.h"

namespace ddp::internal {

// `count` elements of a floating-point type.
struct GradientValues {
  DType dtype = DType::kFloat32;
  void* data = nullptr;
  size_t count = 0;
};

bool IsFloat(DType dtype);

// The norm of order `norm_type`, above 0 and perhaps infinite, of all elements that were added.
// Sums in double, whatever the elements' types. NaN where an element is.
class NormSum {
 public:
  explicit NormSum(double norm_type) : norm_type_(norm_type) {}
  // REQUIRES: IsFloat(values.dtype), for all of these.
  void Add(const GradientValues& values);
  double Norm() const;
  // What other ranks' elements are added to: as a maximum where the order is infinite, else as a
  // sum.
  double* partial() { return &sum_; }

 private:
  const double norm_type_;
  double sum_ = 0;  // of powers; the largest where the order is infinite
};

// Multiplies every element by `factor`, which is first rounded to float32 unless they are float64.
void Scale(const GradientValues& values, double factor);

// How many are NaN or infinite.
size_t CountNonFinite(const GradientValues& values);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GRADIENT_VALUES_H_
