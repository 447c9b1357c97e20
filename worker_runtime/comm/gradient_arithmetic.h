// Arithmetic on gradients where a communicator's memory is: norms, scaling, NaN.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_GRADIENT_ARITHMETIC_H_
#define DDPRUN_WORKER_RUNTIME_COMM_GRADIENT_ARITHMETIC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp::internal {

// `count` elements, of a floating-point type unless a call says otherwise.
struct GradientValues {
  DType dtype = DType::kFloat32;
  void* data = nullptr;
  size_t count = 0;
};

// At once in host memory; on a GPU in the order of `stream`, for which the host waits where a
// number is the result: DeadlineExceeded after the group's timeout, and the group's error if it has
// failed.
class GradientArithmetic {
 public:
  virtual ~GradientArithmetic() = default;
  // Makes what all calls but SetToZero() need, which do so otherwise. The driver's error where a
  // GPU cannot compile the kernels.
  virtual absl::Status Prepare() = 0;
  // Of any type.
  virtual absl::Status SetToZero(const GradientValues& values, Stream stream) = 0;
  // Multiplies every element by `factor`, which is first rounded to float32 unless they are
  // float64.
  virtual absl::Status Scale(const GradientValues& values, double factor, Stream stream) = 0;
  // What NormOf() makes the norm of all elements of: the sum of the magnitudes' powers of order
  // `norm_type`, in double whatever the elements' types, or the largest where that is infinite. NaN
  // where an element is.
  virtual absl::StatusOr<double> PartOfNorm(std::span<const GradientValues> gradients,
                                            double norm_type, Stream stream) = 0;
  // How many elements are NaN or infinite.
  virtual absl::StatusOr<int64_t> CountNonFinite(std::span<const GradientValues> gradients,
                                                 Stream stream) = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_GRADIENT_ARITHMETIC_H_
