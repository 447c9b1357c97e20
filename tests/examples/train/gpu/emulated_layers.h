// The kernels of layers.cu, run on the CPU.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_LAYERS_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_LAYERS_H_

#include "tests/support/cuda_emulation.h"

namespace ddprun::testing {

EmulatedKernels EmulatedLayers();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_GPU_EMULATED_LAYERS_H_
