// cuBLAS as a table of functions, opened at run time: the part of its ABI that we use, declared
// anew, so that no CUDA header is needed to build. Checked against the real cublas_v2.h by a test
// where one is found.
#ifndef DDPRUN_EXAMPLES_TRAIN_GPU_CUBLAS_H_
#define DDPRUN_EXAMPLES_TRAIN_GPU_CUBLAS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace train {

using CublasHandle = struct CublasHandleTag*;
using CublasStream = struct CublasStreamTag*;  // a CUstream

using CublasResult = int;
inline constexpr CublasResult kCublasSuccess = 0;
inline constexpr CublasResult kCublasNotInitialized = 1;
inline constexpr CublasResult kCublasAllocFailed = 3;
inline constexpr CublasResult kCublasInvalidValue = 7;
inline constexpr CublasResult kCublasArchMismatch = 8;
inline constexpr CublasResult kCublasExecutionFailed = 13;
inline constexpr CublasResult kCublasNotSupported = 15;

// cublasOperation_t
using CublasOperation = int;
inline constexpr CublasOperation kCublasPlain = 0;
inline constexpr CublasOperation kCublasTransposed = 1;

// libraryPropertyType
inline constexpr int kCublasMajorVersion = 0;
inline constexpr int kCublasMinorVersion = 1;
inline constexpr int kCublasPatchLevel = 2;

// What training a network of dense layers needs. Members are named after the functions of
// cublas_v2.h. None is null in a table that LoadCublas returned. A value: tests put functions of
// their own into a copy.
struct CublasApi {
  CublasResult (*cublasGetProperty)(int property, int* value);  // needs no handle
  const char* (*cublasGetStatusName)(CublasResult result);
  const char* (*cublasGetStatusString)(CublasResult result);

  // Of the CUDA context that is current.
  CublasResult (*cublasCreate)(CublasHandle* handle);
  CublasResult (*cublasDestroy)(CublasHandle handle);
  CublasResult (*cublasSetStream)(CublasHandle handle, CublasStream stream);
  // After cublasSetStream, which goes back to the handle's own. Needed for graph capture, and for
  // equal bits in every run.
  CublasResult (*cublasSetWorkspace)(CublasHandle handle, void* workspace, size_t bytes);
  // Column-major: c[m,n] = *alpha * a[m,k] b[k,n] + *beta * c[m,n].
  CublasResult (*cublasSgemm)(CublasHandle handle, CublasOperation a_operation,
                              CublasOperation b_operation, int m, int n, int k, const float* alpha,
                              const float* a, int a_stride, const float* b, int b_stride,
                              const float* beta, float* c, int c_stride);
};

struct LoadedCublas {
  CublasApi api{};
  std::string path;     // of the file, as the loader found it
  std::string version;  // "13.1.0"
};

// Opens cuBLAS, in this order: $DDPRUN_CUBLAS_LIB, and nothing else when that is set; what a
// framework has loaded into this process already; "libcublas.so.13", then ".12", as the system
// finds them; likewise those of the wheels of $DDPRUN_NCCL_PYTHON, else $PYTHON_EXEC, else the
// python3 of $PATH. Touches no GPU.
// Errors: NotFound naming every place that was looked at; FailedPrecondition naming the function
// that the library lacks.
absl::StatusOr<LoadedCublas> LoadCublas();

// Ok, or cuBLAS's words: "cublasSgemm: an unsupported value ... (CUBLAS_STATUS_INVALID_VALUE)". The
// code is ResourceExhausted for memory, FailedPrecondition for a device that cannot do it,
// InvalidArgument for a wrong value, Internal otherwise.
absl::Status CublasStatus(const CublasApi& api, const char* call, CublasResult result);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_GPU_CUBLAS_H_
