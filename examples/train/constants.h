// Numbers that the networks on the CPU and on the GPU share. Plain C++: nvcc reads it too.
#ifndef DDPRUN_EXAMPLES_TRAIN_CONSTANTS_H_
#define DDPRUN_EXAMPLES_TRAIN_CONSTANTS_H_

namespace train {

// MNIST's own mean and deviation, of pixels between 0 and 1.
constexpr float kPixelMean = 0.1307f, kPixelDeviation = 0.3081f;
constexpr float kMomentum = 0.9f;

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_CONSTANTS_H_
