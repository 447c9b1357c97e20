// The part of cuBLAS's ABI that we use, declared anew: no CUDA header is needed to build. Checked
// against the real cublas_v2.h by a test where one is found.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_CUBLAS_ABI_H_
#define DDPRUN_WORKER_RUNTIME_GPU_CUBLAS_ABI_H_

namespace ddp::internal {

using CublasHandle = struct CublasHandleTag*;

using CublasResult = int;
inline constexpr CublasResult kCublasSuccess = 0;
inline constexpr CublasResult kCublasNotInitialized = 1;
inline constexpr CublasResult kCublasAllocFailed = 3;
inline constexpr CublasResult kCublasInvalidValue = 7;
inline constexpr CublasResult kCublasArchMismatch = 8;
inline constexpr CublasResult kCublasMappingError = 11;
inline constexpr CublasResult kCublasExecutionFailed = 13;
inline constexpr CublasResult kCublasInternalError = 14;
inline constexpr CublasResult kCublasNotSupported = 15;

// cublasOperation_t
using CublasOperation = int;
inline constexpr CublasOperation kCublasPlain = 0;
inline constexpr CublasOperation kCublasTransposed = 1;

// libraryPropertyType
inline constexpr int kCublasMajorVersion = 0;
inline constexpr int kCublasMinorVersion = 1;
inline constexpr int kCublasPatchLevel = 2;

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_CUBLAS_ABI_H_
