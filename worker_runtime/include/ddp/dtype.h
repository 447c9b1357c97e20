// Element types that collectives understand.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DTYPE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace ddp {

enum class DType : uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUint8 };

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
      return 1;
  }
  return 0;
}

// "float32", "bfloat16", ...
const char* Name(DType dtype);

// How an all-reduce combines ranks. kAverage divides by the world size: floating types are summed
// in the accumulator type and divided once, integers are divided with truncation towards zero.
enum class ReduceOp : uint8_t { kSum, kAverage };

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DTYPE_H_
