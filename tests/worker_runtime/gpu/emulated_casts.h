// The kernels of cast.cu, run on the CPU.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_GPU_EMULATED_CASTS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_GPU_EMULATED_CASTS_H_

#include "tests/support/cuda_emulation.h"

namespace ddprun::testing {

EmulatedKernels EmulatedCasts();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_GPU_EMULATED_CASTS_H_
