// cuBLAS's table over host memory: what MatrixProducts calls, done at once.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_CUBLAS_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_CUBLAS_H_

#include "examples/train/gpu/cublas.h"

namespace ddprun::testing {

// A product fails (cuBLAS's code 7, invalid value) when it was given no stream, no workspace set
// after the stream, or leading dimensions that cuBLAS refuses.
train::CublasApi EmulatedCublas();
// Handles made and not destroyed.
int LiveCublasHandles();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_CUBLAS_H_
