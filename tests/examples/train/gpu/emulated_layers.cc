#include "tests/examples/train/gpu/emulated_layers.h"

#include <type_traits>

#include "examples/train/gpu/layers.cu"

// The host passes what the kernels read.
static_assert(std::is_same_v<decltype(gather_images), train::GatherImages>);
static_assert(std::is_same_v<decltype(add_bias_relu), train::AddBiasRelu>);
static_assert(std::is_same_v<decltype(softmax_loss), train::SoftmaxLoss>);
static_assert(std::is_same_v<decltype(score_slope), train::ScoreSlope>);
static_assert(std::is_same_v<decltype(relu_slope), train::ReluSlope>);
static_assert(std::is_same_v<decltype(add_column_sums), train::AddColumnSums>);
static_assert(std::is_same_v<decltype(momentum_update), train::MomentumUpdate>);

namespace ddprun::testing {

EmulatedKernels EmulatedLayers() {
  return {{"gather_images", Emulate(gather_images)},
          {"add_bias_relu", Emulate(add_bias_relu)},
          {"softmax_loss", Emulate(softmax_loss, /*has_barrier=*/true)},
          {"score_slope", Emulate(score_slope)},
          {"relu_slope", Emulate(relu_slope)},
          {"add_column_sums", Emulate(add_column_sums, /*has_barrier=*/true)},
          {"momentum_update", Emulate(momentum_update)}};
}

}  // namespace ddprun::testing
