// What our kernels share: which elements a thread takes, and the 16-bit types.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_KERNELS_ELEMENTS_H_
#define DDPRUN_WORKER_RUNTIME_GPU_KERNELS_ELEMENTS_H_

#include <stdint.h>

namespace {

// Grid-stride: any grid does, counts have 64 bits.
__device__ int64_t First() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t Stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// To nearest, ties to even. The emulation of the tests brings its own cvt_*: PTX's instructions.
struct Float16 {
#ifdef __CUDACC__
  static __device__ uint16_t Narrow(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  static __device__ float Widen(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
#else
  static uint16_t Narrow(float value) { return cvt_rn_f16_f32(value); }
  static float Widen(uint16_t bits) { return cvt_f32_f16(bits); }
#endif
};

struct BFloat16 {
#ifdef __CUDACC__
  static __device__ uint16_t Narrow(float value) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  // bfloat16 is the upper half of float32; ISA 7.0 has no instruction for this way.
  static __device__ float Widen(uint16_t bits) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  }
#else
  static uint16_t Narrow(float value) { return cvt_rn_bf16_f32(value); }
  static float Widen(uint16_t bits) { return cvt_f32_bf16(bits); }
#endif
};

// An element as what it is computed with, and back. Integers wrap, which only unsigned ones may.
template <typename Element>
struct Same {
  using Bits = Element;
  static __device__ Element Load(Element element) { return element; }
  static __device__ Element Store(Element value) { return value; }
};

template <typename Type>
struct Half {
  using Bits = uint16_t;
  static __device__ float Load(uint16_t bits) { return Type::Widen(bits); }
  static __device__ uint16_t Store(float value) { return Type::Narrow(value); }
};

}  // namespace

#endif  // DDPRUN_WORKER_RUNTIME_GPU_KERNELS_ELEMENTS_H_
