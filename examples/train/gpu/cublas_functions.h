// The functions of CublasApi beside what the library calls them.
#ifndef DDPRUN_EXAMPLES_TRAIN_GPU_CUBLAS_FUNCTIONS_H_
#define DDPRUN_EXAMPLES_TRAIN_GPU_CUBLAS_FUNCTIONS_H_

// X(member of CublasApi, symbol of the library). A macro, because the loader needs the names as
// text and the test against cublas_v2.h needs them as types.
#define DDPRUN_CUBLAS_FUNCTIONS(X)                \
  X(cublasGetProperty, cublasGetProperty)         \
  X(cublasGetStatusName, cublasGetStatusName)     \
  X(cublasGetStatusString, cublasGetStatusString) \
  X(cublasCreate, cublasCreate_v2)                \
  X(cublasDestroy, cublasDestroy_v2)              \
  X(cublasSetStream, cublasSetStream_v2)          \
  X(cublasSetWorkspace, cublasSetWorkspace_v2)    \
  X(cublasSgemm, cublasSgemm_v2)

#endif  // DDPRUN_EXAMPLES_TRAIN_GPU_CUBLAS_FUNCTIONS_H_
