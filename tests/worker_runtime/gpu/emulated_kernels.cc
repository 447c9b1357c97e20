#include "tests/worker_runtime/gpu/emulated_kernels.h"

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
#include "worker_runtime/gpu/kernels/hash.cu"
#include "worker_runtime/gpu/kernels/sum.cu"
#include "worker_runtime/gpu/kernels/values.cu"

namespace ddprun::testing {

EmulatedKernels EmulatedCasts() {
  return {{"float32_to_float16", Emulate(float32_to_float16)},
          {"float32_to_bfloat16", Emulate(float32_to_bfloat16)},
          {"float16_to_float32", Emulate(float16_to_float32)},
          {"bfloat16_to_float32", Emulate(bfloat16_to_float32)}};
}

EmulatedKernels EmulatedHashes() {
  return {{"hash_8_bits", Emulate(hash_8_bits)},
          {"hash_16_bits", Emulate(hash_16_bits)},
          {"hash_32_bits", Emulate(hash_32_bits)},
          {"hash_64_bits", Emulate(hash_64_bits)}};
}

EmulatedKernels EmulatedSums() {
  return {{"sum_float32", Emulate(sum_float32)}, {"sum_float64", Emulate(sum_float64)},
          {"sum_float16", Emulate(sum_float16)}, {"sum_bfloat16", Emulate(sum_bfloat16)},
          {"sum_int32", Emulate(sum_int32)},     {"sum_int64", Emulate(sum_int64)},
          {"sum_uint8", Emulate(sum_uint8)}};
}

EmulatedKernels EmulatedValues() {
  return {{"scale_float32", Emulate(scale_float32)}, {"scale_float64", Emulate(scale_float64)},
          {"scale_float16", Emulate(scale_float16)}, {"scale_bfloat16", Emulate(scale_bfloat16)},
          {"add_float32", Emulate(add_float32)},     {"add_float64", Emulate(add_float64)},
          {"add_float16", Emulate(add_float16)},     {"add_bfloat16", Emulate(add_bfloat16)},
          {"fold_sums", Emulate(fold_sums)}};
}

}  // namespace ddprun::testing
