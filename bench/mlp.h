// The network that is trained: dense layers with relu, and a softmax at the end; and its samples.
#ifndef DDPRUN_BENCH_MLP_H_
#define DDPRUN_BENCH_MLP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddprun::bench {

// Eight layers of this width are some MB of gradients in several buckets, and a step of some ten
// milliseconds on one core: enough for both to be seen, and small enough for any machine.
struct MlpShape {
  int inputs = 256;
  int hidden = 384;
  int hidden_layers = 7;
  int classes = 10;
};

struct LayerSize {
  int inputs, outputs;
};
LayerSize SizeOf(const MlpShape& shape, int layer);

struct MlpParameter {
  std::string name;
  std::vector<float> values;  // what training starts from, the same on every machine
};
// In the order of forward: weight (inputs x outputs, row by row) and bias of each layer.
std::vector<MlpParameter> InitialParameters(const MlpShape& shape);

// Samples drawn with a fixed seed, labelled by a fixed rule, so that there is something to learn.
struct Samples {
  std::vector<float> inputs;  // row by row
  std::vector<uint8_t> labels;
};
Samples MakeSamples(const MlpShape& shape, int count);

// The mean over `total` samples of the cross entropy of these rows; turns scores into their slopes.
double LossAndSlope(float* scores, std::span<const uint8_t> labels, int classes, int64_t total);

// Stochastic gradient descent with momentum.
inline constexpr float kLearningRate = 0.01f, kMomentum = 0.9f;
void Update(std::span<float> values, std::span<const float> gradient, std::span<float> velocity);

// The activations of one device. Borrows the weights and the gradients, by parameter, of each call.
class Mlp {
 public:
  explicit Mlp(const MlpShape& shape);
  ~Mlp();

  // `rows` samples; scores() has their rows x classes scores.
  void Forward(const float* inputs, int rows, std::span<const float* const> weights);
  float* scores();
  // Adds to the gradients, the last layer's first. `slopes` are those of the scores.
  void Backward(const float* slopes, std::span<const float* const> weights,
                std::span<float* const> gradients, const std::function<void(int)>& ready);
  // What the last calls left here.
  size_t bytes() const;

 private:
  struct State;  // Eigen matrices, kept out of this header
  const MlpShape shape_;
  const std::unique_ptr<State> state_;
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_MLP_H_
