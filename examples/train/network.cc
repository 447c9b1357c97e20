#include "examples/train/network.h"

#include <cmath>
#include <eigen3/Eigen/Core>
#include <random>

namespace train {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Matrix<float, 1, Eigen::Dynamic>;

enum { kHiddenWeight, kHiddenBias, kOutputWeight, kOutputBias };

// MNIST's own mean and deviation.
constexpr float kMean = 0.1307f, kDeviation = 0.3081f;

Parameter ZeroParameter(std::string name, size_t count) {
  return {.name = std::move(name),
          .values = std::vector<float>(count),
          .velocity = std::vector<float>(count)};
}

Parameter RandomParameter(std::string name, size_t inputs, size_t outputs, std::mt19937& random) {
  Parameter parameter = ZeroParameter(std::move(name), inputs * outputs);
  const float limit = std::sqrt(6.0f / static_cast<float>(inputs));
  for (float& value : parameter.values) {
    // Not a standard distribution: those differ between libraries.
    value = limit * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  }
  return parameter;
}

Eigen::Map<Matrix> AsMatrix(float* data, int rows, int columns) { return {data, rows, columns}; }
Eigen::Map<Row> AsRow(float* data, int columns) { return {data, columns}; }

}  // namespace

struct Network::Activations {
  Matrix input, hidden, probabilities;
  std::vector<uint8_t> labels;
};

Network::Network(int inputs, int hidden, uint64_t seed)
    : inputs_(inputs), hidden_(hidden), last_(std::make_unique<Activations>()) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  parameters_.push_back(RandomParameter("hidden.weight", inputs, hidden, random));
  parameters_.push_back(ZeroParameter("hidden.bias", hidden));
  parameters_.push_back(RandomParameter("output.weight", hidden, kClasses, random));
  parameters_.push_back(ZeroParameter("output.bias", kClasses));
}

Network::~Network() = default;

double Network::Forward(const ImageSet& images, std::span<const int64_t> indices) {
  Matrix& input = last_->input;
  const int rows = static_cast<int>(indices.size());
  input.resize(rows, inputs_);
  last_->labels.resize(indices.size());
  for (int row = 0; row < rows; ++row) {
    const uint8_t* pixels = images.pixels.data() + indices[row] * inputs_;
    for (int i = 0; i < inputs_; ++i) {
      input(row, i) = (static_cast<float>(pixels[i]) / 255.0f - kMean) / kDeviation;
    }
    last_->labels[row] = images.labels[indices[row]];
  }

  auto value = [this](int parameter) { return parameters_[parameter].values.data(); };
  Matrix& hidden = last_->hidden;
  hidden.noalias() = input * AsMatrix(value(kHiddenWeight), inputs_, hidden_);
  hidden.rowwise() += AsRow(value(kHiddenBias), hidden_);
  hidden = hidden.cwiseMax(0.0f);
  Matrix& scores = last_->probabilities;
  scores.noalias() = hidden * AsMatrix(value(kOutputWeight), hidden_, kClasses);
  scores.rowwise() += AsRow(value(kOutputBias), kClasses);

  double loss = 0;
  for (int row = 0; row < rows; ++row) {
    auto score = scores.row(row);
    const float own = score(last_->labels[row]), highest = score.maxCoeff();
    score = (score.array() - highest).exp();
    const float sum = score.sum();
    loss += std::log(sum) - (own - highest);
    score /= sum;
  }
  return loss;
}

void Network::Backward(float scale, const std::function<void(int)>& ready) {
  auto gradient = [this](int parameter) { return parameters_[parameter].gradient; };
  // With softmax and cross entropy the gradient of the scores is probability minus truth.
  Matrix slope = last_->probabilities;
  for (int row = 0; row < slope.rows(); ++row) slope(row, last_->labels[row]) -= 1.0f;
  slope *= scale;

  AsRow(gradient(kOutputBias), kClasses) += slope.colwise().sum();
  ready(kOutputBias);
  AsMatrix(gradient(kOutputWeight), hidden_, kClasses).noalias() +=
      last_->hidden.transpose() * slope;
  ready(kOutputWeight);

  Matrix hidden_slope;
  hidden_slope.noalias() =
      slope * AsMatrix(parameters_[kOutputWeight].values.data(), hidden_, kClasses).transpose();
  hidden_slope.array() *= (last_->hidden.array() > 0.0f).cast<float>();
  AsRow(gradient(kHiddenBias), hidden_) += hidden_slope.colwise().sum();
  ready(kHiddenBias);
  AsMatrix(gradient(kHiddenWeight), inputs_, hidden_).noalias() +=
      last_->input.transpose() * hidden_slope;
  ready(kHiddenWeight);
}

void Network::Update(float learning_rate) {
  constexpr float kMomentum = 0.9f;
  for (Parameter& parameter : parameters_) {
    const float* gradient = parameter.gradient;
    float* velocity = parameter.velocity.data();
    float* value = parameter.values.data();
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      velocity[i] = kMomentum * velocity[i] + gradient[i];
      value[i] -= learning_rate * velocity[i];
    }
  }
}

int64_t Network::CountCorrect() const {
  int64_t correct = 0;
  for (int row = 0; row < last_->probabilities.rows(); ++row) {
    Eigen::Index best = 0;
    last_->probabilities.row(row).maxCoeff(&best);
    correct += best == last_->labels[row] ? 1 : 0;
  }
  return correct;
}

}  // namespace train
