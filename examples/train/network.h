// A classifier with one hidden layer: softmax(relu(x W1 + b1) W2 + b2).
#ifndef DDPRUN_EXAMPLES_TRAIN_NETWORK_H_
#define DDPRUN_EXAMPLES_TRAIN_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "examples/train/idx_data.h"

namespace train {

// One array of weights, in the memory of the device that the network computes on. The network
// computes its gradient into `gradient`, which it does not own.
struct Parameter {
  std::string name;
  size_t count = 0;
  float* values = nullptr;
  float* gradient = nullptr;
};

// Successive weights, which are updated together; in the device's memory.
struct Weights {
  float* values = nullptr;
  float* velocity = nullptr;  // of the optimizer
  const float* gradient = nullptr;
  size_t count = 0;
};

// What forward passes added up.
struct Tally {
  double loss = 0;      // the sum over images (cross entropy)
  int64_t correct = 0;  // images that have their own label's score as the highest
};

// Its work is queued on the device in the order of the calls; a device's error is the result of the
// next call. Used by one thread.
class Network {
 public:
  Network() = default;
  virtual ~Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // In the order in which forward uses them; owned by the network.
  virtual std::vector<Parameter>& parameters() = 0;

  // Classifies these images of the set, which must live as long as the network.
  virtual absl::Status Forward(const ImageSet& images, std::span<const int64_t> indices) = 0;
  // Adds `scale` times the gradient of the last Forward's sum of losses to every parameter's
  // gradient, and calls `ready(i)` as soon as that of parameter i is complete or queued, the last
  // one first. After an error not every parameter was ready.
  // REQUIRES: every parameter has a gradient, and the last Forward was ok.
  virtual absl::Status Backward(float scale, const std::function<void(int)>& ready) = 0;
  // Stochastic gradient descent with momentum 0.9.
  virtual absl::Status Update(const Weights& weights, float learning_rate) = 0;
  // Zeros in the device's memory, for what an optimizer keeps; they live as long as the network.
  // Null for none.
  virtual absl::StatusOr<float*> MakeZeros(const char* what, size_t count) = 0;
  // The sums over all Forwards since the last TakeTally. Waits for the device: not for every step.
  virtual absl::StatusOr<Tally> TakeTally() = 0;

  // Where its work is queued; null on the CPU.
  virtual ddp::Stream stream() const = 0;
  // Copies values or velocities out to the host or back, after all that is queued.
  virtual absl::Status CopyOut(const float* device, float* host, size_t count) = 0;
  virtual absl::Status CopyIn(const float* host, float* device, size_t count) = 0;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_NETWORK_H_
