#include "ddp/dtype.h"

namespace ddp {

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUint8:
      return "uint8";
    case DType::kInt8:
      return "int8";
  }
  return "unknown";
}

const char* Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kBitAnd:
      return "bitwise and";
    case ReduceOp::kBitOr:
      return "bitwise or";
    case ReduceOp::kBitXor:
      return "bitwise xor";
  }
  return "unknown";
}

}  // namespace ddp
