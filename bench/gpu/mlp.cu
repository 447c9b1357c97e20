// The network of `ddprun bench` on a GPU. Plain on purpose: it is to load a GPU, not to be fast.
// Compiled to mlp.ptx by tools/gpu_kernels. Matrices are row by row. No atomics: a result depends
// on the values alone. mlp_kernels.h says the same signatures to the host.
#include <math.h>
#include <stdint.h>

#include "bench/gpu/mlp_kernels.h"

namespace {

using ddprun::bench::kTile;

__device__ int64_t First() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t Stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// c = a b, or c += a b, where `a` or `b` may lie in memory transposed. Neighbouring threads read
// neighbouring addresses either way; the tiles have a column more, so that those who store a tile
// transposed do not meet in one bank.
// REQUIRES: blocks of kTile x kTile, one for each tile of c.
template <bool kIsATransposed, bool kIsBTransposed, bool kAdds>
__device__ void Multiply(const float* a, const float* b, float* c, int32_t rows, int32_t columns,
                         int32_t inner) {
  __shared__ float a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
  const int32_t tiles = (columns + kTile - 1) / kTile;
  const int32_t block = static_cast<int32_t>(blockIdx.x);
  const int32_t first_row = block / tiles * kTile, first_column = block % tiles * kTile;
  const int32_t x = static_cast<int32_t>(threadIdx.x), y = static_cast<int32_t>(threadIdx.y);
  float sum = 0;
  for (int32_t begin = 0; begin < inner; begin += kTile) {
    if (kIsATransposed) {
      const bool is_inside = begin + y < inner && first_row + x < rows;
      a_tile[x][y] = is_inside ? a[(begin + y) * rows + first_row + x] : 0.0f;
    } else {
      const bool is_inside = first_row + y < rows && begin + x < inner;
      a_tile[y][x] = is_inside ? a[(first_row + y) * inner + begin + x] : 0.0f;
    }
    if (kIsBTransposed) {
      const bool is_inside = first_column + y < columns && begin + x < inner;
      b_tile[x][y] = is_inside ? b[(first_column + y) * inner + begin + x] : 0.0f;
    } else {
      const bool is_inside = begin + y < inner && first_column + x < columns;
      b_tile[y][x] = is_inside ? b[(begin + y) * columns + first_column + x] : 0.0f;
    }
    __syncthreads();
    for (int32_t k = 0; k < kTile; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  if (first_row + y >= rows || first_column + x >= columns) return;
  float& to = c[(first_row + y) * columns + first_column + x];
  to = kAdds ? to + sum : sum;
}

}  // namespace

// A layer's outputs, of its inputs and its weight.
extern "C" __global__ void multiply(const float* a, const float* b, float* c, int32_t rows,
                                    int32_t columns, int32_t inner) {
  Multiply<false, false, false>(a, b, c, rows, columns, inner);
}

// Adds a weight's gradient, of the layer's inputs, read transposed, and the slope of its outputs.
extern "C" __global__ void add_transposed_product(const float* a, const float* b, float* c,
                                                  int32_t rows, int32_t columns, int32_t inner) {
  Multiply<true, false, true>(a, b, c, rows, columns, inner);
}

// The slope of a layer's inputs, of that of its outputs and its weight, read transposed.
extern "C" __global__ void multiply_by_transposed(const float* a, const float* b, float* c,
                                                  int32_t rows, int32_t columns, int32_t inner) {
  Multiply<false, true, false>(a, b, c, rows, columns, inner);
}

extern "C" __global__ void add_bias(float* outputs, const float* bias, int64_t count,
                                    int32_t columns, int32_t has_relu) {
  for (int64_t i = First(); i < count; i += Stride()) {
    const float value = outputs[i] + bias[i % columns];
    outputs[i] = has_relu != 0 && value < 0.0f ? 0.0f : value;  // NaN stays: the loss shows it
  }
}

// The cross entropy of each row; scores become `factor` times the slopes of the
// mean over `total` rows.
extern "C" __global__ void softmax_slope(float* scores, const uint8_t* labels, double* losses,
                                         int32_t rows, int32_t classes, float total, float factor) {
  for (int64_t row = First(); row < rows; row += Stride()) {
    float* score = scores + row * classes;
    const float own = score[labels[row]];
    float highest = score[0];
    for (int32_t i = 1; i < classes; ++i) highest = score[i] > highest ? score[i] : highest;
    float sum = 0;
    for (int32_t i = 0; i < classes; ++i) {
      score[i] = expf(score[i] - highest);
      sum += score[i];
    }
    losses[row] = logf(sum) - (own - highest);
    for (int32_t i = 0; i < classes; ++i) {
      const float truth = i == labels[row] ? 1.0f : 0.0f;
      score[i] = (score[i] / sum - truth) / total * factor;
    }
  }
}

// A bias's gradient: sums[column] += the sum over the rows, always in the same order.
extern "C" __global__ void add_column_sums(const float* matrix, int32_t rows, int32_t columns,
                                           float* sums) {
  for (int64_t column = First(); column < columns; column += Stride()) {
    float sum = 0;
    for (int32_t row = 0; row < rows; ++row) {
      sum += matrix[static_cast<int64_t>(row) * columns + column];
    }
    sums[column] += sum;
  }
}

// slope = 0 where the output was cut.
extern "C" __global__ void relu_slope(float* slope, const float* outputs, int64_t count) {
  for (int64_t i = First(); i < count; i += Stride()) {
    if (!(outputs[i] > 0.0f)) slope[i] = 0.0f;
  }
}

// Stochastic gradient descent with momentum.
extern "C" __global__ void momentum_update(float* values, const float* gradient, float* velocity,
                                           int64_t count, float learning_rate, float momentum) {
  for (int64_t i = First(); i < count; i += Stride()) {
    velocity[i] = momentum * velocity[i] + gradient[i];
    values[i] -= learning_rate * velocity[i];
  }
}
