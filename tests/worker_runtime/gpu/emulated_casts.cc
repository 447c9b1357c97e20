#include "tests/worker_runtime/gpu/emulated_casts.h"

#include "worker_runtime/comm/kernels.h"

namespace {

using ddp::DType;

// PTX's conversions round like the processor's and like our CPU kernels.
uint16_t Narrowed(DType type, float value) {
  uint16_t bits = 0;
  ddp::internal::PortableKernels().store(type, &value, &bits, 1, 1);
  return bits;
}
float Widened(DType type, uint16_t bits) {
  float value = 0;
  ddp::internal::PortableKernels().load(type, &bits, &value, 1);
  return value;
}

uint16_t cvt_rn_f16_f32(float value) { return Narrowed(DType::kFloat16, value); }
uint16_t cvt_rn_bf16_f32(float value) { return Narrowed(DType::kBFloat16, value); }
float cvt_f32_f16(uint16_t bits) { return Widened(DType::kFloat16, bits); }
float cvt_f32_bf16(uint16_t bits) { return Widened(DType::kBFloat16, bits); }

}  // namespace

#include "worker_runtime/gpu/kernels/cast.cu"

namespace ddprun::testing {

EmulatedKernels EmulatedCasts() {
  return {{"float32_to_float16", Emulate(float32_to_float16)},
          {"float32_to_bfloat16", Emulate(float32_to_bfloat16)},
          {"float16_to_float32", Emulate(float16_to_float32)},
          {"bfloat16_to_float32", Emulate(bfloat16_to_float32)}};
}

}  // namespace ddprun::testing
