// The casts of the float16 and bfloat16 hooks: half the bytes on the wire. Compiled to cast.ptx by
// tools/gpu_kernels. Grid-stride: any grid does, counts have 64 bits. Views of a bucket may start
// at any element; those that are not aligned go one element at a time.
#include <stdint.h>

#include "worker_runtime/gpu/kernels/elements.h"

namespace {

__device__ bool IsAligned(const void* pointer, unsigned alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// The scale comes before the rounding: a sum over ranks of scaled float16 cannot overflow where
// their mean does not.
template <typename Type>
__device__ void Narrow(const float* input, uint16_t* output, int64_t count, float scale) {
  int64_t done = 0;
  if (IsAligned(input, sizeof(float4)) && IsAligned(output, sizeof(ushort4))) {
    const float4* from = reinterpret_cast<const float4*>(input);
    ushort4* to = reinterpret_cast<ushort4*>(output);
    for (int64_t i = First(); i < count / 4; i += Stride()) {
      const float4 value = from[i];
      to[i] = ushort4{Type::Narrow(value.x * scale), Type::Narrow(value.y * scale),
                      Type::Narrow(value.z * scale), Type::Narrow(value.w * scale)};
    }
    done = count / 4 * 4;
  }
  for (int64_t i = done + First(); i < count; i += Stride()) {
    output[i] = Type::Narrow(input[i] * scale);
  }
}

template <typename Type>
__device__ void Widen(const uint16_t* input, float* output, int64_t count) {
  int64_t done = 0;
  if (IsAligned(input, sizeof(ushort4)) && IsAligned(output, sizeof(float4))) {
    const ushort4* from = reinterpret_cast<const ushort4*>(input);
    float4* to = reinterpret_cast<float4*>(output);
    for (int64_t i = First(); i < count / 4; i += Stride()) {
      const ushort4 value = from[i];
      to[i] = float4{Type::Widen(value.x), Type::Widen(value.y), Type::Widen(value.z),
                     Type::Widen(value.w)};
    }
    done = count / 4 * 4;
  }
  for (int64_t i = done + First(); i < count; i += Stride()) output[i] = Type::Widen(input[i]);
}

}  // namespace

// output[i] = round(input[i] * scale)
extern "C" __global__ void float32_to_float16(const float* input, uint16_t* output, int64_t count,
                                              float scale) {
  Narrow<Float16>(input, output, count, scale);
}
extern "C" __global__ void float32_to_bfloat16(const float* input, uint16_t* output, int64_t count,
                                               float scale) {
  Narrow<BFloat16>(input, output, count, scale);
}

// output[i] = input[i]
extern "C" __global__ void float16_to_float32(const uint16_t* input, float* output, int64_t count) {
  Widen<Float16>(input, output, count);
}
extern "C" __global__ void bfloat16_to_float32(const uint16_t* input, float* output,
                                               int64_t count) {
  Widen<BFloat16>(input, output, count);
}
