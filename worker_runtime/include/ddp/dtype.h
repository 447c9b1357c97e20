// Element types of collectives.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DTYPE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace ddp {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt32,
  kInt64,
  kUint8,
  kInt8
};

// Bytes of one element.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUint8:
    case DType::kInt8:
      return 1;
  }
  return 0;
}

// "float32", "bfloat16", ...
const char* Name(DType dtype);

// How an all-reduce or a reduce-scatter combines the ranks' elements.
//
// The CPU backends combine in an accumulator and round to the type once, at the end. The
// accumulator is float32 for float16 and bfloat16, 32 bits for uint8 and int8, and the type itself
// otherwise.
// - kSum and kProduct of integers wrap.
// - kAverage divides the sum by the world size, once: floats before the one rounding, integers with
//   truncation towards zero. The sum of uint8 and int8 does not overflow on the way. That of int32
//   and int64 wraps.
// - kMax and kMin are NaN if any rank has a NaN. For zeros with different signs the result is that
//   of the lowest rank.
// - kBitAnd, kBitOr and kBitXor are for integers. For floats they are refused.
//
// With `nccl`, NCCL computes all results. It has no operations on bits: they are refused. Its
// average multiplies each float by 1 / world size rounded to the type before it sums, as in
// PyTorch. The products and the sums are rounded, too. With 3 ranks a bfloat16 is off by up to 1 %,
// of which 0.2 % is always in the same direction. Integers, including uint8 and int8, are summed in
// their own type, where they wrap, and then divided. NCCL chooses whether a NaN or another rank's
// number is the maximum or minimum.
enum class ReduceOp : uint8_t { kSum, kAverage, kMax, kMin, kProduct, kBitAnd, kBitOr, kBitXor };

// "sum", "average", "max", "min", "product", "bitwise and", "bitwise or", "bitwise xor".
const char* Name(ReduceOp op);

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DTYPE_H_
