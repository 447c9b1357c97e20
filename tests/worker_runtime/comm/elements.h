// Values of every element type for tests, and what the collectives must make of them.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_COMM_ELEMENTS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_COMM_ELEMENTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "ddp/dtype.h"

namespace ddp::testing {

inline constexpr DType kAllTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                      DType::kBFloat16, DType::kInt32,   DType::kInt64,
                                      DType::kUint8,    DType::kInt8};

inline constexpr ReduceOp kAllReductions[] = {
    ReduceOp::kSum,     ReduceOp::kAverage, ReduceOp::kMax,   ReduceOp::kMin,
    ReduceOp::kProduct, ReduceOp::kBitAnd,  ReduceOp::kBitOr, ReduceOp::kBitXor};

// Whether there is such a reduction of such elements.
inline bool Goes(DType dtype, ReduceOp op) {
  const bool is_integer = dtype == DType::kInt32 || dtype == DType::kInt64 ||
                          dtype == DType::kUint8 || dtype == DType::kInt8;
  return is_integer || op < ReduceOp::kBitAnd;
}

// The compiler's own half type is the judge of ours.
using Half = _Float16;

inline float FromBFloat16Bits(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// By search rather than by arithmetic: the nearer neighbour, ties to the even one.
inline uint16_t ToBFloat16Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t down = static_cast<uint16_t>(bits >> 16);
  const uint16_t up = static_cast<uint16_t>(down + 1);
  const double below = FromBFloat16Bits(down);
  const double above = FromBFloat16Bits(up);
  const double to_below = value < below ? below - value : value - below;
  const double to_above = value < above ? above - value : value - above;
  if (to_below != to_above) return to_below < to_above ? down : up;
  return down % 2 == 0 ? down : up;
}

// A reproducible value without a pattern: bits of a mixed index.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Element `index` of `rank`'s input, written to `at` (unaligned). Floating values span a few orders
// of magnitude so that another order of summation gives other bits.
inline void WriteInput(DType dtype, int rank, size_t index, char* at) {
  const uint64_t random = Mix(static_cast<uint64_t>(rank) * 1000003 + index * 7919 + 17);
  const int64_t whole = static_cast<int64_t>(random % 2000001) - 1000000;
  const double real = static_cast<double>(whole) * 1e-6 * static_cast<double>(1 + random % 97);
  auto put = [at](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case DType::kFloat32:
      return put(static_cast<float>(real));
    case DType::kFloat64:
      return put(real);
    case DType::kFloat16:
      return put(static_cast<Half>(static_cast<float>(real)));
    case DType::kBFloat16:
      return put(ToBFloat16Bits(static_cast<float>(real)));
    case DType::kInt32:
      return put(static_cast<int32_t>(whole * 2000));
    case DType::kInt64:
      return put(static_cast<int64_t>(random));
    case DType::kUint8:
      return put(static_cast<uint8_t>(random));
    case DType::kInt8:
      return put(static_cast<int8_t>(random));
  }
}

// Computed once: ranks are threads, and every layout wants the same bytes.
template <typename Make>
std::string Memoized(const std::string& key, Make make) {
  static std::mutex mutex;
  static auto* made = new std::map<std::string, std::string>();
  std::lock_guard lock(mutex);
  auto found = made->find(key);
  if (found == made->end()) found = made->emplace(key, make()).first;
  return found->second;
}

inline std::string ComputeInputs(DType dtype, int rank, size_t first, size_t count) {
  std::string bytes(count * SizeOf(dtype), '\0');
  for (size_t i = 0; i < count; ++i) {
    WriteInput(dtype, rank, first + i, bytes.data() + i * SizeOf(dtype));
  }
  return bytes;
}

template <typename T>
T Read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Two elements, the earlier rank's first. Of equal ones and of two NaNs the first stays.
template <typename T>
T Combine(ReduceOp op, T first, T second) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return first + second;
    case ReduceOp::kProduct:
      return first * second;
    case ReduceOp::kMax:
      if (std::isnan(first) || std::isnan(second)) return std::isnan(first) ? first : second;
      return std::max(first, second);
    case ReduceOp::kMin:
      if (std::isnan(first) || std::isnan(second)) return std::isnan(first) ? first : second;
      return std::min(first, second);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;  // of no float
  }
  return first;
}

template <>
inline int64_t Combine(ReduceOp op, int64_t first, int64_t second) {
  if (op == ReduceOp::kMax) return std::max(first, second);
  if (op == ReduceOp::kMin) return std::min(first, second);
  if (op == ReduceOp::kBitAnd) return first & second;
  if (op == ReduceOp::kBitOr) return first | second;
  if (op == ReduceOp::kBitXor) return first ^ second;
  const uint64_t a = static_cast<uint64_t>(first), b = static_cast<uint64_t>(second);
  return static_cast<int64_t>(op == ReduceOp::kProduct ? a * b : a + b);
}

// Element `index` of all ranks, in ascending order, as the header of ReduceOp promises.
inline void WriteReduced(DType dtype, ReduceOp op, int world_size, size_t index, char* at) {
  char input[8];
  float sum32 = 0;
  double sum64 = 0;
  int64_t whole = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    WriteInput(dtype, rank, index, input);
    const auto take = [&](auto& all, auto value) {
      all = rank == 0 ? value : Combine(op, all, value);
    };
    if (dtype == DType::kFloat32) take(sum32, Read<float>(input));
    if (dtype == DType::kFloat16) take(sum32, static_cast<float>(Read<Half>(input)));
    if (dtype == DType::kBFloat16) take(sum32, FromBFloat16Bits(Read<uint16_t>(input)));
    if (dtype == DType::kFloat64) take(sum64, Read<double>(input));
    if (dtype == DType::kInt32) take(whole, int64_t{Read<int32_t>(input)});
    if (dtype == DType::kInt64) take(whole, Read<int64_t>(input));
    if (dtype == DType::kUint8) take(whole, int64_t{Read<uint8_t>(input)});
    if (dtype == DType::kInt8) take(whole, int64_t{Read<int8_t>(input)});
  }
  const int by = op == ReduceOp::kAverage ? world_size : 1;
  auto put = [at](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case DType::kFloat32:
      return put(sum32 / static_cast<float>(by));
    case DType::kFloat64:
      return put(sum64 / by);
    case DType::kFloat16:
      return put(static_cast<Half>(sum32 / static_cast<float>(by)));
    case DType::kBFloat16:
      return put(ToBFloat16Bits(sum32 / static_cast<float>(by)));
    case DType::kInt32:
      return put(static_cast<int32_t>(static_cast<int32_t>(whole) / by));
    case DType::kInt64:
      return put(whole / by);
    case DType::kUint8:
      return put(static_cast<uint8_t>(whole / by));
    case DType::kInt8:
      return put(static_cast<int8_t>(whole / by));
  }
}

inline std::string Inputs(DType dtype, int rank, size_t first, size_t count) {
  std::ostringstream key;
  key << Name(dtype) << " of rank " << rank << " from " << first << " x " << count;
  return Memoized(key.str(), [&] { return ComputeInputs(dtype, rank, first, count); });
}

inline std::string ComputeReduced(DType dtype, ReduceOp op, int world_size, size_t first,
                                  size_t count) {
  std::string bytes(count * SizeOf(dtype), '\0');
  for (size_t i = 0; i < count; ++i) {
    WriteReduced(dtype, op, world_size, first + i, bytes.data() + i * SizeOf(dtype));
  }
  return bytes;
}

inline std::string Reduced(DType dtype, ReduceOp op, int world_size, size_t first, size_t count) {
  std::ostringstream key;
  key << Name(dtype) << ' ' << Name(op) << " of " << world_size << " from " << first << " x "
      << count;
  return Memoized(key.str(), [&] { return ComputeReduced(dtype, op, world_size, first, count); });
}

}  // namespace ddp::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_COMM_ELEMENTS_H_
