// The kernels' code, compiled once per instruction set. The including file defines KERNELS (the
// namespace) and KERNELS_HAVE_F16C (0 or 1). No standard header with inline functions may come in
// here: the linker keeps one copy of such a function, and it could be the one with AVX2.
#ifndef KERNELS
#error "include from kernels_*.cc only"
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "worker_runtime/comm/kernels.h"

namespace ddp::internal::KERNELS {
namespace {

// Callers' pointers have no alignment, so every element type is declared without one.
#define DDP_UNALIGNED __attribute__((aligned(1), may_alias))
typedef float Float32 DDP_UNALIGNED;
typedef uint16_t Bits16 DDP_UNALIGNED;
typedef uint32_t Bits32 DDP_UNALIGNED;

// Attributes of a template's argument are dropped, those of a member type are kept.
struct OfFloat32 {
  typedef float Value;
  typedef float Unaligned DDP_UNALIGNED;
};
struct OfFloat64 {
  typedef double Value;
  typedef double Unaligned DDP_UNALIGNED;
};
// Integers wrap, which only unsigned ones may; the bits are the same.
struct OfUint32 {
  typedef uint32_t Value;
  typedef uint32_t Unaligned DDP_UNALIGNED;
};
struct OfUint64 {
  typedef uint64_t Value;
  typedef uint64_t Unaligned DDP_UNALIGNED;
};
struct OfUint8 {
  typedef uint8_t Value;
  typedef uint8_t Unaligned DDP_UNALIGNED;
};
// Division is signed.
struct OfInt32 {
  typedef int32_t Value;
  typedef int32_t Unaligned DDP_UNALIGNED;
};
struct OfInt64 {
  typedef int64_t Value;
  typedef int64_t Unaligned DDP_UNALIGNED;
};

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

template <typename Of>
void LoadSame(const void* input, void* accumulator, size_t count) {
  memcpy(accumulator, input, count * sizeof(typename Of::Value));
}

template <typename Of>
void AddSame(const void* input, void* accumulator, size_t count) {
  const typename Of::Unaligned* in = static_cast<const typename Of::Unaligned*>(input);
  typename Of::Unaligned* acc = static_cast<typename Of::Unaligned*>(accumulator);
  for (size_t i = 0; i < count; ++i) acc[i] = static_cast<typename Of::Value>(acc[i] + in[i]);
}

template <typename Of>
void StoreSame(const void* accumulator, void* output, size_t count, int divisor) {
  typedef typename Of::Value Value;
  if (divisor == 1) {
    memcpy(output, accumulator, count * sizeof(Value));
    return;
  }
  const typename Of::Unaligned* acc = static_cast<const typename Of::Unaligned*>(accumulator);
  typename Of::Unaligned* out = static_cast<typename Of::Unaligned*>(output);
  // A divisor above 255 makes every average of bytes 0, and does not fit a byte.
  if (sizeof(Value) == 1) {
    for (size_t i = 0; i < count; ++i) {
      out[i] = static_cast<Value>(static_cast<int>(acc[i]) / divisor);
    }
    return;
  }
  const Value by = static_cast<Value>(divisor);
  for (size_t i = 0; i < count; ++i) out[i] = acc[i] / by;
}

void LoadBFloat16(const void* input, void* accumulator, size_t count) {
  const Bits16* in = static_cast<const Bits16*>(input);
  Bits32* acc = static_cast<Bits32*>(accumulator);
  for (size_t i = 0; i < count; ++i) acc[i] = static_cast<uint32_t>(in[i]) << 16;
}

void AddBFloat16(const void* input, void* accumulator, size_t count) {
  const Bits16* in = static_cast<const Bits16*>(input);
  Float32* acc = static_cast<Float32*>(accumulator);
  for (size_t i = 0; i < count; ++i) acc[i] = acc[i] + FromBFloat16(in[i]);
}

void StoreBFloat16(const void* accumulator, void* output, size_t count, int divisor) {
  const Float32* acc = static_cast<const Float32*>(accumulator);
  Bits16* out = static_cast<Bits16*>(output);
  const float by = static_cast<float>(divisor);
  for (size_t i = 0; i < count; ++i) out[i] = ToBFloat16(acc[i] / by);
}

#if KERNELS_HAVE_F16C
inline __m256 Widen8(const Bits16* in) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
}
#endif

template <bool is_add>
void WidenFloat16(const void* input, void* accumulator, size_t count) {
  const Bits16* in = static_cast<const Bits16*>(input);
  Float32* acc = static_cast<Float32*>(accumulator);
  size_t i = 0;
#if KERNELS_HAVE_F16C
  for (; i + 8 <= count; i += 8) {
    float* at = reinterpret_cast<float*>(acc + i);
    __m256 value = Widen8(in + i);
    if (is_add) value = _mm256_add_ps(_mm256_loadu_ps(at), value);
    _mm256_storeu_ps(at, value);
  }
#endif
  for (; i < count; ++i) acc[i] = is_add ? acc[i] + FromFloat16(in[i]) : FromFloat16(in[i]);
}

void StoreFloat16(const void* accumulator, void* output, size_t count, int divisor) {
  const Float32* acc = static_cast<const Float32*>(accumulator);
  Bits16* out = static_cast<Bits16*>(output);
  const float by = static_cast<float>(divisor);
  size_t i = 0;
#if KERNELS_HAVE_F16C
  const __m256 divide = _mm256_set1_ps(by);
  for (; i + 8 <= count; i += 8) {
    __m256 value = _mm256_div_ps(_mm256_loadu_ps(reinterpret_cast<const float*>(acc + i)), divide);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) out[i] = ToFloat16(acc[i] / by);
}

void Load(DType dtype, const void* input, void* accumulator, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return LoadSame<OfFloat32>(input, accumulator, count);
    case DType::kFloat64:
      return LoadSame<OfFloat64>(input, accumulator, count);
    case DType::kFloat16:
      return WidenFloat16<false>(input, accumulator, count);
    case DType::kBFloat16:
      return LoadBFloat16(input, accumulator, count);
    case DType::kInt32:
      return LoadSame<OfUint32>(input, accumulator, count);
    case DType::kInt64:
      return LoadSame<OfUint64>(input, accumulator, count);
    case DType::kUint8:
      return LoadSame<OfUint8>(input, accumulator, count);
  }
}

void Add(DType dtype, const void* input, void* accumulator, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return AddSame<OfFloat32>(input, accumulator, count);
    case DType::kFloat64:
      return AddSame<OfFloat64>(input, accumulator, count);
    case DType::kFloat16:
      return WidenFloat16<true>(input, accumulator, count);
    case DType::kBFloat16:
      return AddBFloat16(input, accumulator, count);
    case DType::kInt32:
      return AddSame<OfUint32>(input, accumulator, count);
    case DType::kInt64:
      return AddSame<OfUint64>(input, accumulator, count);
    case DType::kUint8:
      return AddSame<OfUint8>(input, accumulator, count);
  }
}

void Store(DType dtype, const void* accumulator, void* output, size_t count, int divisor) {
  switch (dtype) {
    case DType::kFloat32:
      return StoreSame<OfFloat32>(accumulator, output, count, divisor);
    case DType::kFloat64:
      return StoreSame<OfFloat64>(accumulator, output, count, divisor);
    case DType::kFloat16:
      return StoreFloat16(accumulator, output, count, divisor);
    case DType::kBFloat16:
      return StoreBFloat16(accumulator, output, count, divisor);
    case DType::kInt32:
      return StoreSame<OfInt32>(accumulator, output, count, divisor);
    case DType::kInt64:
      return StoreSame<OfInt64>(accumulator, output, count, divisor);
    case DType::kUint8:
      return StoreSame<OfUint8>(accumulator, output, count, divisor);
  }
}

// A few ranks' float32 in place is the common case and bound by memory: one pass, no accumulator.
// A line of another rank is fetched for writing at once, not for reading first and for writing
// afterwards: between cores that is half the traffic.
template <int ranks, int results>
void ReduceFew(const void* const* inputs, void* const* outputs, size_t count, float divisor) {
  constexpr size_t kLine = 16;
  constexpr size_t kAhead = 32 * kLine;
  const Float32* in[ranks];
  Float32* out[results];
  for (int k = 0; k < ranks; ++k) in[k] = static_cast<const Float32*>(inputs[k]);
  for (int k = 0; k < results; ++k) out[k] = static_cast<Float32*>(outputs[k]);
  size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    for (int k = 0; k < results; ++k) __builtin_prefetch(out[k] + i + kAhead, 1);
    float sum[kLine];
    for (size_t j = 0; j < kLine; ++j) sum[j] = in[0][i + j];
    for (int k = 1; k < ranks; ++k) {
      for (size_t j = 0; j < kLine; ++j) sum[j] = sum[j] + in[k][i + j];
    }
    for (size_t j = 0; j < kLine; ++j) sum[j] = sum[j] / divisor;
    for (int k = 0; k < results; ++k) {
      for (size_t j = 0; j < kLine; ++j) out[k][i + j] = sum[j];
    }
  }
  for (; i < count; ++i) {
    float sum = in[0][i];
    for (int k = 1; k < ranks; ++k) sum = sum + in[k][i];
    sum = sum / divisor;
    for (int k = 0; k < results; ++k) out[k][i] = sum;
  }
}

// False if there is no such kernel for these numbers of ranks.
bool ReduceFloat32(const void* const* inputs, int input_count, void* const* outputs,
                   int output_count, size_t count, float divisor) {
  if (output_count != 1 && output_count != input_count) return false;
  const bool is_one = output_count == 1;
  switch (input_count) {
    case 2:
      (is_one ? ReduceFew<2, 1> : ReduceFew<2, 2>)(inputs, outputs, count, divisor);
      return true;
    case 3:
      (is_one ? ReduceFew<3, 1> : ReduceFew<3, 3>)(inputs, outputs, count, divisor);
      return true;
    case 4:
      (is_one ? ReduceFew<4, 1> : ReduceFew<4, 4>)(inputs, outputs, count, divisor);
      return true;
    case 8:
      (is_one ? ReduceFew<8, 1> : ReduceFew<8, 8>)(inputs, outputs, count, divisor);
      return true;
  }
  return false;
}

void Reduce(DType dtype, const void* const* inputs, int input_count, void* const* outputs,
            int output_count, size_t count, int divisor) {
  if (dtype == DType::kFloat32 && ReduceFloat32(inputs, input_count, outputs, output_count, count,
                                                static_cast<float>(divisor))) {
    return;
  }
  constexpr size_t kBlock = 1024;  // accumulators and one input of it stay in the first-level cache
  alignas(64) unsigned char accumulator[kBlock * 8];
  const size_t size = SizeOf(dtype);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = count - begin < kBlock ? count - begin : kBlock;
    const size_t offset = begin * size;
    Load(dtype, static_cast<const char*>(inputs[0]) + offset, accumulator, n);
    for (int k = 1; k < input_count; ++k) {
      Add(dtype, static_cast<const char*>(inputs[k]) + offset, accumulator, n);
    }
    char* first = static_cast<char*>(outputs[0]) + offset;
    Store(dtype, accumulator, first, n, divisor);
    for (int k = 1; k < output_count; ++k) {
      memcpy(static_cast<char*>(outputs[k]) + offset, first, n * size);
    }
  }
}

}  // namespace

extern const Kernels kTable;
const Kernels kTable = {KERNELS_HAVE_F16C ? "avx2" : "portable", Load, Add, Store, Reduce};

}  // namespace ddp::internal::KERNELS
