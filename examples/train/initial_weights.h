// The weights that training starts from, the same for the same seed on every machine and device.
#ifndef DDPRUN_EXAMPLES_TRAIN_INITIAL_WEIGHTS_H_
#define DDPRUN_EXAMPLES_TRAIN_INITIAL_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace train {

struct InitialWeights {
  std::string name;
  std::vector<float> values;  // of a matrix row by row: inputs x outputs
};

// The order of the result.
enum { kHiddenWeight, kHiddenBias, kOutputWeight, kOutputBias };

// Random weights, scaled for relu, and zero biases.
std::vector<InitialWeights> MakeInitialWeights(int inputs, int hidden, uint64_t seed);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_INITIAL_WEIGHTS_H_
