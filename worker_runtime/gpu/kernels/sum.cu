// The sums of DataParallel's gradients, as the CPU's kernels add: in the order of the inputs, in an
// accumulator, rounded once at the end. Compiled to sum.ptx by tools/gpu_kernels.
#include <stdint.h>

#include "worker_runtime/gpu/kernels/elements.h"

namespace {

// output[i] = round(output[i] + inputs[i] + inputs[stride + i] + ...)
template <typename Type, typename Bits>
__device__ void Sum(Bits* output, const Bits* inputs, int64_t input_count, int64_t stride,
                    int64_t count) {
  for (int64_t i = First(); i < count; i += Stride()) {
    auto sum = Type::Load(output[i]);
    for (int64_t input = 0; input < input_count; ++input) {
      sum += Type::Load(inputs[input * stride + i]);
    }
    output[i] = Type::Store(sum);
  }
}

}  // namespace

#define DDPRUN_SUM(name, Type)                                                          \
  extern "C" __global__ void name(Type::Bits* output, const Type::Bits* inputs,         \
                                  int64_t input_count, int64_t stride, int64_t count) { \
    Sum<Type>(output, inputs, input_count, stride, count);                              \
  }
DDPRUN_SUM(sum_float32, Same<float>)
DDPRUN_SUM(sum_float64, Same<double>)
DDPRUN_SUM(sum_float16, Half<Float16>)
DDPRUN_SUM(sum_bfloat16, Half<BFloat16>)
DDPRUN_SUM(sum_int32, Same<uint32_t>)
DDPRUN_SUM(sum_int64, Same<uint64_t>)
DDPRUN_SUM(sum_uint8, Same<uint8_t>)
#undef DDPRUN_SUM
