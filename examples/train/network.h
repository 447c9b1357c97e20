// A classifier with one hidden layer: softmax(relu(x W1 + b1) W2 + b2).
#ifndef DDPRUN_EXAMPLES_TRAIN_NETWORK_H_
#define DDPRUN_EXAMPLES_TRAIN_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "examples/train/idx_data.h"

namespace train {

// One array of weights. The network computes its gradient into `gradient`, which it does not own.
struct Parameter {
  std::string name;
  std::vector<float> values;
  std::vector<float> velocity;  // of the optimizer
  float* gradient = nullptr;
};

class Network {
 public:
  // Random weights, the same for the same seed on every machine.
  Network(int inputs, int hidden, uint64_t seed);
  ~Network();

  // In the order in which forward uses them.
  std::vector<Parameter>& parameters() { return parameters_; }

  // Classifies these images of the set; returns the sum of their losses (cross entropy).
  double Forward(const ImageSet& images, std::span<const int64_t> indices);
  // Adds `scale` times the gradient of the sum that the last Forward returned to every parameter's
  // gradient, and calls `ready(i)` as soon as that of parameter i is complete, the last one first.
  void Backward(float scale, const std::function<void(int)>& ready);
  // Stochastic gradient descent with momentum 0.9.
  void Update(float learning_rate);
  // How many of the last Forward's images have their own label's score as the highest.
  int64_t CountCorrect() const;

 private:
  struct Activations;  // Eigen matrices, kept out of this header

  const int inputs_;
  const int hidden_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<Activations> last_;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_NETWORK_H_
