// One 16-bit float to float32 and back. Part of kernels_impl.h, and under its rule: no standard
// header with inline functions.
#ifndef KERNELS
#error "include from kernels_impl.h only"
#endif

#include <stdint.h>
#include <string.h>

namespace ddp::internal::KERNELS {
namespace {

inline float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t ToBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float FromBFloat16(uint16_t half) { return FromBits(static_cast<uint32_t>(half) << 16); }

// Round to nearest, ties to even; a NaN stays one, quiet.
inline uint16_t ToBFloat16(float value) {
  uint32_t bits = ToBits(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// The same bits as the F16C instructions, NaN payloads included.
inline float FromFloat16(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) {
    uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return FromBits(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0) return FromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24, which float32 holds exactly.
  float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
  return FromBits(sign | ToBits(magnitude));
}

inline uint16_t ToFloat16(float value) {
  uint32_t bits = ToBits(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  }
  if (bits >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (bits < 0x38800000u) {
    // Below the smallest normal half. Adding 0.5 puts the half's last bit at the float's last, so
    // that the addition itself rounds to nearest even.
    return static_cast<uint16_t>(sign | (ToBits(FromBits(bits) + 0.5f) - 0x3f000000u));
  }
  // Rounding may carry into the exponent, up to infinity: that is what it should do.
  uint32_t rounded = bits + 0xfffu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace
}  // namespace ddp::internal::KERNELS
