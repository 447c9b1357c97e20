// What the kernels of values.cu take of each element: known to them and to who launches them.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_KERNELS_VALUE_TERM_H_
#define DDPRUN_WORKER_RUNTIME_GPU_KERNELS_VALUE_TERM_H_

#include <stdint.h>

namespace ddp::internal {

enum class ValueTerm : int64_t {
  kSquare,
  kMagnitude,
  kPower,      // of the magnitude
  kNonFinite,  // 1 for NaN and the infinities, else 0
  kLargest,    // the magnitude, of which the largest counts and not the sum
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_KERNELS_VALUE_TERM_H_
