#include "tests/bench/gpu/emulated_mlp.h"

#include <eigen3/Eigen/Core>
#include <type_traits>

#include "bench/gpu/mlp.cu"

// The host passes what the kernels read.
static_assert(std::is_same_v<decltype(multiply), ddprun::bench::MultiplyMatrices>);
static_assert(std::is_same_v<decltype(add_transposed_product), ddprun::bench::MultiplyMatrices>);
static_assert(std::is_same_v<decltype(multiply_by_transposed), ddprun::bench::MultiplyMatrices>);
static_assert(std::is_same_v<decltype(add_bias), ddprun::bench::AddBias>);
static_assert(std::is_same_v<decltype(softmax_slope), ddprun::bench::SoftmaxSlope>);
static_assert(std::is_same_v<decltype(add_column_sums), ddprun::bench::AddColumnSums>);
static_assert(std::is_same_v<decltype(relu_slope), ddprun::bench::ReluSlope>);
static_assert(std::is_same_v<decltype(momentum_update), ddprun::bench::MomentumUpdate>);

namespace ddprun::testing {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMatrix = Eigen::Map<const Matrix>;

// The first thread does the work of all.
bool IsFirst() { return blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0; }

void QuickMultiply(const float* a, const float* b, float* c, int32_t rows, int32_t columns,
                   int32_t inner) {
  if (!IsFirst()) return;
  Eigen::Map<Matrix>(c, rows, columns).noalias() =
      ConstMatrix(a, rows, inner) * ConstMatrix(b, inner, columns);
}

void QuickAddTransposedProduct(const float* a, const float* b, float* c, int32_t rows,
                               int32_t columns, int32_t inner) {
  if (!IsFirst()) return;
  Eigen::Map<Matrix>(c, rows, columns).noalias() +=
      ConstMatrix(a, inner, rows).transpose() * ConstMatrix(b, inner, columns);
}

void QuickMultiplyByTransposed(const float* a, const float* b, float* c, int32_t rows,
                               int32_t columns, int32_t inner) {
  if (!IsFirst()) return;
  Eigen::Map<Matrix>(c, rows, columns).noalias() =
      ConstMatrix(a, rows, inner) * ConstMatrix(b, columns, inner).transpose();
}

}  // namespace

EmulatedKernels EmulatedMlp() {
  return {{"multiply", Emulate(multiply, /*has_barrier=*/true)},
          {"add_transposed_product", Emulate(add_transposed_product, /*has_barrier=*/true)},
          {"multiply_by_transposed", Emulate(multiply_by_transposed, /*has_barrier=*/true)},
          {"add_bias", Emulate(add_bias)},
          {"softmax_slope", Emulate(softmax_slope)},
          {"add_column_sums", Emulate(add_column_sums)},
          {"relu_slope", Emulate(relu_slope)},
          {"momentum_update", Emulate(momentum_update)}};
}

EmulatedKernels QuickMlp() {
  EmulatedKernels kernels = EmulatedMlp();
  kernels["multiply"] = Emulate(QuickMultiply);
  kernels["add_transposed_product"] = Emulate(QuickAddTransposedProduct);
  kernels["multiply_by_transposed"] = Emulate(QuickMultiplyByTransposed);
  return kernels;
}

}  // namespace ddprun::testing
