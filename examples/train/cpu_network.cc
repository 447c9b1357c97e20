#include "examples/train/cpu_network.h"

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Core>
#include <utility>

#include "examples/train/constants.h"

namespace train {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Matrix<float, 1, Eigen::Dynamic>;

Eigen::Map<Matrix> AsMatrix(float* data, int rows, int columns) { return {data, rows, columns}; }
Eigen::Map<Row> AsRow(float* data, int columns) { return {data, columns}; }

}  // namespace

std::string EigenVersion() {
  return std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

struct CpuNetwork::Activations {
  Matrix input, hidden, probabilities;
  std::vector<uint8_t> labels;
};

CpuNetwork::CpuNetwork(int inputs, int hidden, uint64_t seed)
    : inputs_(inputs),
      hidden_(hidden),
      weights_(MakeInitialWeights(inputs, hidden, seed)),
      last_(std::make_unique<Activations>()) {
  for (InitialWeights& weights : weights_) {
    parameters_.push_back(
        {.name = weights.name, .count = weights.values.size(), .values = weights.values.data()});
  }
}

CpuNetwork::~CpuNetwork() = default;

absl::Status CpuNetwork::Forward(const ImageSet& images, std::span<const int64_t> indices) {
  Matrix& input = last_->input;
  const int rows = static_cast<int>(indices.size());
  input.resize(rows, inputs_);
  last_->labels.resize(indices.size());
  for (int row = 0; row < rows; ++row) {
    const uint8_t* pixels = images.pixels.data() + indices[row] * inputs_;
    for (int i = 0; i < inputs_; ++i) {
      input(row, i) = (static_cast<float>(pixels[i]) / 255.0f - kPixelMean) / kPixelDeviation;
    }
    last_->labels[row] = images.labels[indices[row]];
  }

  auto value = [this](int parameter) { return parameters_[parameter].values; };
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
    Eigen::Index best = 0;
    const float own = score(last_->labels[row]), highest = score.maxCoeff(&best);
    score = (score.array() - highest).exp();
    const float sum = score.sum();
    loss += std::log(sum) - (own - highest);
    score /= sum;
    if (best == last_->labels[row]) ++tally_.correct;
  }
  tally_.loss += loss;
  return absl::OkStatus();
}

absl::Status CpuNetwork::Backward(float scale, const std::function<void(int)>& ready) {
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
      slope * AsMatrix(parameters_[kOutputWeight].values, hidden_, kClasses).transpose();
  hidden_slope.array() *= (last_->hidden.array() > 0.0f).cast<float>();
  AsRow(gradient(kHiddenBias), hidden_) += hidden_slope.colwise().sum();
  ready(kHiddenBias);
  AsMatrix(gradient(kHiddenWeight), inputs_, hidden_).noalias() +=
      last_->input.transpose() * hidden_slope;
  ready(kHiddenWeight);
  return absl::OkStatus();
}

absl::Status CpuNetwork::Update(const Weights& weights, float learning_rate) {
  for (size_t i = 0; i < weights.count; ++i) {
    weights.velocity[i] = kMomentum * weights.velocity[i] + weights.gradient[i];
    weights.values[i] -= learning_rate * weights.velocity[i];
  }
  return absl::OkStatus();
}

absl::StatusOr<float*> CpuNetwork::MakeZeros(const char*, size_t count) {
  if (count == 0) return nullptr;
  zeros_.emplace_back(count);
  return zeros_.back().data();
}

absl::StatusOr<Tally> CpuNetwork::TakeTally() { return std::exchange(tally_, Tally()); }

absl::Status CpuNetwork::CopyOut(const float* device, float* host, size_t count) {
  std::copy_n(device, count, host);
  return absl::OkStatus();
}

absl::Status CpuNetwork::CopyIn(const float* host, float* device, size_t count) {
  std::copy_n(host, count, device);
  return absl::OkStatus();
}

}  // namespace train
