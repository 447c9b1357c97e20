#include "examples/train/initial_weights.h"

#include <cmath>
#include <random>
#include <utility>

#include "examples/train/idx_data.h"

namespace train {
namespace {

InitialWeights Zero(std::string name, size_t count) {
  return {.name = std::move(name), .values = std::vector<float>(count)};
}

InitialWeights Random(std::string name, size_t inputs, size_t outputs, std::mt19937& random) {
  InitialWeights weights = Zero(std::move(name), inputs * outputs);
  const float limit = std::sqrt(6.0f / static_cast<float>(inputs));
  for (float& value : weights.values) {
    // Not a standard distribution: those differ between libraries.
    value = limit * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  }
  return weights;
}

}  // namespace

std::vector<InitialWeights> MakeInitialWeights(int inputs, int hidden, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<InitialWeights> weights;
  weights.push_back(Random("hidden.weight", inputs, hidden, random));
  weights.push_back(Zero("hidden.bias", hidden));
  weights.push_back(Random("output.weight", hidden, kClasses, random));
  weights.push_back(Zero("output.bias", kClasses));
  return weights;
}

}  // namespace train
