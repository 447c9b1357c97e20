// The kernels of mlp.cu, run on the CPU.
#ifndef DDPRUN_TESTS_BENCH_GPU_EMULATED_MLP_H_
#define DDPRUN_TESTS_BENCH_GPU_EMULATED_MLP_H_

#include "tests/support/cuda_emulation.h"

namespace ddprun::testing {

// As they stand there.
EmulatedKernels EmulatedMlp();
// The same with matrix products that are Eigen's: a thread of the host for each of a tile would
// take minutes for a network of real size. Several may run at a time.
EmulatedKernels QuickMlp();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_BENCH_GPU_EMULATED_MLP_H_
