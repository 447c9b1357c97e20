#include "tests/gpu_double/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ddprun::gpu_double {
namespace {

// Sums and products of signed numbers wrap, as on a device: taken as unsigned ones of 64 bits.
template <typename T>
T Combine(NcclRedOp op, T a, T b) {
  if (op == kNcclMax) return std::max(a, b);
  if (op == kNcclMin) return std::min(a, b);
  using U = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  const U left = static_cast<U>(a), right = static_cast<U>(b);
  return static_cast<T>(op == kNcclProd ? left * right : left + right);
}

// T as stored, Wide as accumulated.
template <typename T, typename Wide, Wide (*Load)(T), T (*Store)(Wide)>
void ReduceAs(const std::vector<const char*>& inputs, char* output, size_t count, NcclRedOp op,
              bool rounds_average) {
  const auto ranks = static_cast<Wide>(inputs.size());
  const bool is_scaled_first = op == kNcclAvg && rounds_average && std::is_floating_point_v<Wide>;
  const Wide factor = is_scaled_first ? Load(Store(1 / ranks)) : Wide{1};
  for (size_t i = 0; i < count; ++i) {
    Wide all{};
    for (const char* input : inputs) {
      T element;
      std::memcpy(&element, input + i * sizeof(T), sizeof(T));
      Wide value = Load(element);
      if (is_scaled_first) value = Load(Store(value * factor));
      all = input == inputs.front() ? value : Combine(op, all, value);
    }
    if (op == kNcclAvg && !is_scaled_first) all = static_cast<Wide>(all / ranks);
    const T result = Store(all);
    std::memcpy(output + i * sizeof(T), &result, sizeof(T));
  }
}

template <typename T>
T Same(T value) {
  return value;
}

}  // namespace

size_t SizeOf(NcclDataType type) {
  switch (type) {
    case kNcclInt8:
    case kNcclUint8:
      return 1;
    case kNcclFloat16:
    case kNcclBfloat16:
      return 2;
    case kNcclInt32:
    case kNcclFloat32:
      return 4;
    case kNcclInt64:
    case kNcclFloat64:
      return 8;
    default:
      return 0;
  }
}

const char* NameOf(NcclDataType type) {
  switch (type) {
    case kNcclInt8:
      return "int8";
    case kNcclUint8:
      return "uint8";
    case kNcclFloat16:
      return "float16";
    case kNcclBfloat16:
      return "bfloat16";
    case kNcclInt32:
      return "int32";
    case kNcclFloat32:
      return "float32";
    case kNcclInt64:
      return "int64";
    case kNcclFloat64:
      return "float64";
    default:
      return "unknown";
  }
}

void Reduce(const std::vector<const char*>& inputs, char* output, size_t count, NcclDataType type,
            NcclRedOp op, bool rounds_average) {
  switch (type) {
    case kNcclInt8:
      return ReduceAs<int8_t, int8_t, Same, Same>(inputs, output, count, op, rounds_average);
    case kNcclUint8:
      return ReduceAs<uint8_t, uint8_t, Same, Same>(inputs, output, count, op, rounds_average);
    case kNcclInt32:
      return ReduceAs<int32_t, int32_t, Same, Same>(inputs, output, count, op, rounds_average);
    case kNcclInt64:
      return ReduceAs<int64_t, int64_t, Same, Same>(inputs, output, count, op, rounds_average);
    case kNcclFloat16:
      return ReduceAs<uint16_t, float, HalfToFloat, FloatToHalf>(inputs, output, count, op,
                                                                 rounds_average);
    case kNcclBfloat16:
      return ReduceAs<uint16_t, float, Bfloat16ToFloat, FloatToBfloat16>(inputs, output, count, op,
                                                                         rounds_average);
    case kNcclFloat32:
      return ReduceAs<float, float, Same, Same>(inputs, output, count, op, rounds_average);
    case kNcclFloat64:
      return ReduceAs<double, double, Same, Same>(inputs, output, count, op, rounds_average);
    default:
      return;
  }
}

float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  float value;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

uint16_t FloatToHalf(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float size = std::fabs(value);
  if (size == 0) return sign;
  if (std::isnan(size)) return sign | 0x7e00;
  // 65520 is half way between the greatest half and the next: rounded to even, infinity.
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);
  if (exponent < -13) exponent = -13;  // Subnormal halves share the least exponent.
  // In units of the last place; the product is exact, nearbyint rounds to even.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  // A carry out of the fraction lands in the exponent, as it should.
  return static_cast<uint16_t>(sign | (units + ((exponent + 13) << 10)));
}

float Bfloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t FloatToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace ddprun::gpu_double
