// The arithmetic of the CPU collectives: one order, one accumulator type, one rounding.
//
// Accumulators are float32 for float32, float16 and bfloat16, 32 bits for uint8 and int8, and the
// type itself otherwise (integers wrap). Pointers may be unaligned. Every variant - vectorised or
// not - gives the same bits: a result depends on the values and on the order of the calls alone.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_KERNELS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_KERNELS_H_

#include <cstddef>

#include "ddp/dtype.h"

namespace ddp::internal {

// Bytes of one accumulator.
size_t AccumulatorSize(DType dtype);

struct Kernels {
  const char* name;
  // accumulator[i] = input[i]
  void (*load)(DType dtype, const void* input, void* accumulator, size_t count);
  // accumulator[i] = op(accumulator[i], input[i]); an average is a sum until it is stored.
  void (*combine)(ReduceOp op, DType dtype, const void* input, void* accumulator, size_t count);
  // output[i] = round(accumulator[i] / divisor); a divisor of 1 divides nothing.
  void (*store)(DType dtype, const void* accumulator, void* output, size_t count, int divisor);
  // Every output[i] = round(op(inputs[0][i], inputs[1][i], ...) / divisor), combined in that order.
  // An output may be one of the inputs. REQUIRES: both numbers are at least 1.
  void (*reduce)(ReduceOp op, DType dtype, const void* const* inputs, int input_count,
                 void* const* outputs, int output_count, size_t count, int divisor);
};

// The fastest variant that this processor runs.
const Kernels& BestKernels();
// The variant every processor runs, against which the other is tested.
const Kernels& PortableKernels();

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_KERNELS_H_
