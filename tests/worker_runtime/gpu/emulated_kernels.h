// The kernels of the library, run on the CPU.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_GPU_EMULATED_KERNELS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_GPU_EMULATED_KERNELS_H_

#include "tests/support/cuda_emulation.h"

namespace ddprun::testing {

EmulatedKernels EmulatedCasts();
EmulatedKernels EmulatedHashes();
EmulatedKernels EmulatedSums();
EmulatedKernels EmulatedValues();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_GPU_EMULATED_KERNELS_H_
