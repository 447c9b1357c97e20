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
#include "worker_runtime/comm/kernels_combine.h"
#include "worker_runtime/comm/kernels_half.h"

namespace ddp::internal::KERNELS {
namespace {

template <typename Of>
void LoadSame(const void* input, void* accumulator, size_t count) {
  memcpy(accumulator, input, count * sizeof(typename Of::Value));
}

template <typename Do, typename Input, typename Accumulator = Input>
void CombineEach(const void* input, void* accumulator, size_t count) {
  typedef typename Accumulator::Value Value;
  const typename Input::Unaligned* in = static_cast<const typename Input::Unaligned*>(input);
  typename Accumulator::Unaligned* acc = static_cast<typename Accumulator::Unaligned*>(accumulator);
  for (size_t i = 0; i < count; ++i)
    acc[i] = Do::template Of<Value>(acc[i], static_cast<Value>(in[i]));
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
  const Value by = static_cast<Value>(divisor);
  for (size_t i = 0; i < count; ++i) out[i] = acc[i] / by;
}

// Bytes, whose accumulators have 32 bits.
template <typename Byte, typename Wide>
void LoadByte(const void* input, void* accumulator, size_t count) {
  const typename Byte::Value* in = static_cast<const typename Byte::Value*>(input);
  typename Wide::Unaligned* acc = static_cast<typename Wide::Unaligned*>(accumulator);
  for (size_t i = 0; i < count; ++i) acc[i] = in[i];
}

template <typename Byte, typename Wide>
void StoreByte(const void* accumulator, void* output, size_t count, int divisor) {
  const typename Wide::Unaligned* acc = static_cast<const typename Wide::Unaligned*>(accumulator);
  typename Byte::Value* out = static_cast<typename Byte::Value*>(output);
  const typename Wide::Value by = static_cast<typename Wide::Value>(divisor);
  if (by == 1) {
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<typename Byte::Value>(acc[i]);
    return;
  }
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<typename Byte::Value>(acc[i] / by);
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
      return LoadByte<OfUint8, OfUint32>(input, accumulator, count);
    case DType::kInt8:
      return LoadByte<OfInt8, OfInt32>(input, accumulator, count);
  }
}

template <typename Do>
void CombineIntegers(DType dtype, const void* input, void* accumulator, size_t count) {
  switch (dtype) {
    case DType::kInt32:
      return CombineEach<Do, typename Do::Int32>(input, accumulator, count);
    case DType::kInt64:
      return CombineEach<Do, typename Do::Int64>(input, accumulator, count);
    case DType::kUint8:
      return CombineEach<Do, OfUint8, OfUint32>(input, accumulator, count);
    case DType::kInt8:
      return CombineEach<Do, OfInt8, typename Do::Int32>(input, accumulator, count);
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
      return;  // the callers' own
  }
}

void Add(DType dtype, const void* input, void* accumulator, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return CombineEach<Sum, OfFloat32>(input, accumulator, count);
    case DType::kFloat64:
      return CombineEach<Sum, OfFloat64>(input, accumulator, count);
    case DType::kFloat16:
      return WidenFloat16<true>(input, accumulator, count);
    case DType::kBFloat16:
      return AddBFloat16(input, accumulator, count);
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kInt8:
      return CombineIntegers<Sum>(dtype, input, accumulator, count);
  }
}

// Widened block by block, so that it is done as fast as it is loaded.
template <typename Do>
void CombineHalf(DType dtype, const void* input, void* accumulator, size_t count) {
  constexpr size_t kBlock = 256;
  float wide[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = count - begin < kBlock ? count - begin : kBlock;
    Load(dtype, static_cast<const Bits16*>(input) + begin, wide, n);
    CombineEach<Do, OfFloat32>(wide, static_cast<Float32*>(accumulator) + begin, n);
  }
}

template <typename Do>
void CombineBy(DType dtype, const void* input, void* accumulator, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return CombineEach<Do, OfFloat32>(input, accumulator, count);
    case DType::kFloat64:
      return CombineEach<Do, OfFloat64>(input, accumulator, count);
    case DType::kFloat16:
    case DType::kBFloat16:
      return CombineHalf<Do>(dtype, input, accumulator, count);
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kInt8:
      return CombineIntegers<Do>(dtype, input, accumulator, count);
  }
}

void Combine(ReduceOp op, DType dtype, const void* input, void* accumulator, size_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return Add(dtype, input, accumulator, count);
    case ReduceOp::kMax:
      return CombineBy<Max>(dtype, input, accumulator, count);
    case ReduceOp::kMin:
      return CombineBy<Min>(dtype, input, accumulator, count);
    case ReduceOp::kProduct:
      return CombineBy<Product>(dtype, input, accumulator, count);
    case ReduceOp::kBitAnd:
      return CombineIntegers<BitAnd>(dtype, input, accumulator, count);
    case ReduceOp::kBitOr:
      return CombineIntegers<BitOr>(dtype, input, accumulator, count);
    case ReduceOp::kBitXor:
      return CombineIntegers<BitXor>(dtype, input, accumulator, count);
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
      return StoreByte<OfUint8, OfUint32>(accumulator, output, count, divisor);
    case DType::kInt8:
      return StoreByte<OfInt8, OfInt32>(accumulator, output, count, divisor);
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

void Reduce(ReduceOp op, DType dtype, const void* const* inputs, int input_count,
            void* const* outputs, int output_count, size_t count, int divisor) {
  const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  if (is_sum && dtype == DType::kFloat32 &&
      ReduceFloat32(inputs, input_count, outputs, output_count, count,
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
      Combine(op, dtype, static_cast<const char*>(inputs[k]) + offset, accumulator, n);
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
const Kernels kTable = {KERNELS_HAVE_F16C ? "avx2" : "portable", Load, Combine, Store, Reduce};

}  // namespace ddp::internal::KERNELS
