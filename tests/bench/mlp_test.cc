#include "bench/mlp.h"

#include <doctest/doctest.h>

namespace ddprun::bench {
namespace {

constexpr MlpShape kSmall{.inputs = 12, .hidden = 8, .hidden_layers = 2, .classes = 4};
constexpr int kRows = 6;

struct Trained {
  std::vector<MlpParameter> parameters = InitialParameters(kSmall);
  Samples samples = MakeSamples(kSmall, kRows);
  Mlp mlp{kSmall};
  std::vector<const float*> weights;
  std::vector<std::vector<float>> gradients;
  std::vector<int> ready;

  Trained() {
    for (const MlpParameter& parameter : parameters) {
      weights.push_back(parameter.values.data());
      gradients.emplace_back(parameter.values.size());
    }
  }
  double Loss() {
    mlp.Forward(samples.inputs.data(), kRows, weights);
    return LossAndSlope(mlp.scores(), samples.labels, kSmall.classes, kRows);
  }
  void Backward() {
    std::vector<float*> places;
    for (std::vector<float>& gradient : gradients) places.push_back(gradient.data());
    mlp.Backward(mlp.scores(), weights, places, [this](int id) { ready.push_back(id); });
  }
};

TEST_CASE("mlp: gradients are the slopes of the loss") {
  Trained trained;
  trained.Loss();
  trained.Backward();
  for (size_t id = 0; id < trained.parameters.size(); ++id) {
    float& value = trained.parameters[id].values[1];
    const float before = value, delta = 1e-2f;
    value = before + delta;
    const double more = trained.Loss();
    value = before - delta;
    const double less = trained.Loss();
    value = before;
    CAPTURE(trained.parameters[id].name);
    CHECK(trained.gradients[id][1] ==
          doctest::Approx((more - less) / (2 * delta)).epsilon(0.02).scale(0.05));
  }
}

TEST_CASE("mlp: backward delivers each parameter once, the last layer's first") {
  Trained trained;
  trained.Loss();
  trained.Backward();
  CHECK(trained.ready == std::vector<int>{5, 4, 3, 2, 1, 0});
}

TEST_CASE("mlp: steps of the optimizer make the loss smaller") {
  Trained trained;
  const double first = trained.Loss();
  std::vector<std::vector<float>> velocities = trained.gradients;
  for (int step = 0; step < 20; ++step) {
    for (std::vector<float>& gradient : trained.gradients) gradient.assign(gradient.size(), 0);
    trained.Loss();
    trained.Backward();
    for (size_t id = 0; id < velocities.size(); ++id) {
      Update(trained.parameters[id].values, trained.gradients[id], velocities[id]);
    }
  }
  CHECK(trained.Loss() < 0.9 * first);
}

}  // namespace
}  // namespace ddprun::bench
