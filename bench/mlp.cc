#include "bench/mlp.h"

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Core>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Matrix<float, 1, Eigen::Dynamic>;
using ConstMatrix = Eigen::Map<const Matrix>;

constexpr uint32_t kSeed = 1;

// Between -1 and 1. Not a standard distribution: those differ between libraries.
float Draw(std::mt19937& random) { return static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f; }

}  // namespace

LayerSize SizeOf(const MlpShape& shape, int layer) {
  return {.inputs = layer == 0 ? shape.inputs : shape.hidden,
          .outputs = layer == shape.hidden_layers ? shape.classes : shape.hidden};
}

std::vector<MlpParameter> InitialParameters(const MlpShape& shape) {
  std::mt19937 random(kSeed);
  std::vector<MlpParameter> parameters;
  for (int layer = 0; layer <= shape.hidden_layers; ++layer) {
    const LayerSize size = SizeOf(shape, layer);
    std::vector<float> weight(static_cast<size_t>(size.inputs) * size.outputs);
    const float limit = std::sqrt(6.0f / static_cast<float>(size.inputs));
    for (float& value : weight) value = limit * Draw(random);
    parameters.push_back({absl::StrCat("layer", layer, ".weight"), std::move(weight)});
    parameters.push_back({absl::StrCat("layer", layer, ".bias"), std::vector<float>(size.outputs)});
  }
  return parameters;
}

Samples MakeSamples(const MlpShape& shape, int count) {
  std::mt19937 random(kSeed + 1);
  Samples samples{.inputs = std::vector<float>(static_cast<size_t>(count) * shape.inputs),
                  .labels = std::vector<uint8_t>(count)};
  for (float& value : samples.inputs) value = Draw(random);
  for (int i = 0; i < count; ++i) {  // the label is where the largest of the first inputs is
    const auto row = samples.inputs.begin() + static_cast<ptrdiff_t>(i) * shape.inputs;
    const int judged = std::min(shape.classes, shape.inputs);
    samples.labels[i] = static_cast<uint8_t>(std::max_element(row, row + judged) - row);
  }
  return samples;
}

double LossAndSlope(float* scores, std::span<const uint8_t> labels, int classes, int64_t total) {
  double loss = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    Eigen::Map<Row> score(scores + i * classes, classes);
    const float own = score(labels[i]), highest = score.maxCoeff();
    score = (score.array() - highest).exp();
    const float sum = score.sum();
    loss += std::log(sum) - (own - highest);
    score /= sum;
    score(labels[i]) -= 1.0f;
    score /= static_cast<float>(total);
  }
  return loss / static_cast<double>(total);
}

void Update(std::span<float> values, std::span<const float> gradient, std::span<float> velocity) {
  for (size_t i = 0; i < values.size(); ++i) {
    velocity[i] = kMomentum * velocity[i] + gradient[i];
    values[i] -= kLearningRate * velocity[i];
  }
}

struct Mlp::State {
  std::vector<Matrix> outputs;  // by layer
  const float* inputs = nullptr;
  int rows = 0;
  Matrix slope, next_slope;
};

Mlp::Mlp(const MlpShape& shape) : shape_(shape), state_(std::make_unique<State>()) {
  state_->outputs.resize(shape.hidden_layers + 1);
}

Mlp::~Mlp() = default;

void Mlp::Forward(const float* inputs, int rows, std::span<const float* const> weights) {
  state_->inputs = inputs;
  state_->rows = rows;
  const float* input = inputs;
  for (int layer = 0; layer <= shape_.hidden_layers; ++layer) {
    const LayerSize size = SizeOf(shape_, layer);
    Matrix& output = state_->outputs[layer];
    output.noalias() = ConstMatrix(input, rows, size.inputs) *
                       ConstMatrix(weights[2 * layer], size.inputs, size.outputs);
    output.rowwise() += Eigen::Map<const Row>(weights[2 * layer + 1], size.outputs);
    if (layer < shape_.hidden_layers) output = output.cwiseMax(0.0f);
    input = output.data();
  }
}

float* Mlp::scores() { return state_->outputs.back().data(); }

void Mlp::Backward(const float* slopes, std::span<const float* const> weights,
                   std::span<float* const> gradients, const std::function<void(int)>& ready) {
  const int rows = state_->rows;
  state_->slope = ConstMatrix(slopes, rows, shape_.classes);
  for (int layer = shape_.hidden_layers; layer >= 0; --layer) {
    const LayerSize size = SizeOf(shape_, layer);
    const float* input = layer == 0 ? state_->inputs : state_->outputs[layer - 1].data();
    const Matrix& slope = state_->slope;
    Eigen::Map<Row>(gradients[2 * layer + 1], size.outputs) += slope.colwise().sum();
    ready(2 * layer + 1);
    Eigen::Map<Matrix>(gradients[2 * layer], size.inputs, size.outputs).noalias() +=
        ConstMatrix(input, rows, size.inputs).transpose() * slope;
    ready(2 * layer);
    if (layer == 0) break;
    state_->next_slope.noalias() =
        slope * ConstMatrix(weights[2 * layer], size.inputs, size.outputs).transpose();
    state_->next_slope.array() *= (state_->outputs[layer - 1].array() > 0.0f).cast<float>();
    std::swap(state_->slope, state_->next_slope);
  }
}

size_t Mlp::bytes() const {
  size_t elements = static_cast<size_t>(state_->slope.size() + state_->next_slope.size());
  for (const Matrix& output : state_->outputs) elements += static_cast<size_t>(output.size());
  return elements * sizeof(float);
}

}  // namespace ddprun::bench
