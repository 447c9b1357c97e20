// Element types that collectives understand.
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
// The CPU backends combine in an accumulator - float32 for float16 and bfloat16, 32 bits for uint8
// and int8, the type itself otherwise - and round to the type once, at the end.
// - kSum and kProduct of integers wrap.
// - kAverage divides the sum by the world size, once: floats before the one rounding, integers with
//   truncation towards zero. The sum of uint8 and int8 does not overflow on the way; that of int32
//   and int64 wraps.
// - kMax and kMin are NaN where any rank has a NaN. Of zeros with different signs the one of the
//   lowest rank is the result.
// - kBitAnd, kBitOr and kBitXor are for integers; of floats they are refused.
//
// `nccl` leaves it all to NCCL, which has no operations on bits: they are refused.
// Its average multiplies each float by 1 / world size rounded to the type before it sums, as in
// PyTorch. The products and the sums are rounded, too: with 3 ranks a bfloat16 is off by up to 1 %,
// 0.2 % of it in the same direction always. Integers, uint8 and int8 too, are summed in their own
// type, where they wrap, and then divided. Whether a NaN or another rank's number is the maximum or
// minimum is NCCL's choice.
enum class ReduceOp : uint8_t { kSum, kAverage, kMax, kMin, kProduct, kBitAnd, kBitOr, kBitXor };

// "sum", "average", "max", "min", "product", "bitwise and", "bitwise or", "bitwise xor".
const char* Name(ReduceOp op);

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DTYPE_H_
