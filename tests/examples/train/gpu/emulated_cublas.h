// cuBLAS's table over host memory: what MatrixProducts calls, done at once.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_CUBLAS_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_CUBLAS_H_

#include "worker_runtime/gpu/cublas_api.h"

namespace ddprun::testing {

// A product fails (cuBLAS's code 7, invalid value) when it was given no stream, no workspace set
// after the stream, or leading dimensions that cuBLAS refuses.
ddp::internal::CublasApi EmulatedCublas();
// Handles made and not destroyed.
int LiveCublasHandles();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_CUBLAS_H_
