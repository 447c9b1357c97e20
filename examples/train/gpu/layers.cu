// The layers of CudaNetwork but for the matrix products, which are cuBLAS's. Compiled to layers.ptx
// by tools/gpu_kernels. Matrices are row by row. No atomics: a result depends on the values alone.
// layers.h says the same signatures to the host.
#include <math.h>
#include <stdint.h>

#include "examples/train/constants.h"
#include "examples/train/gpu/layers.h"

namespace {

__device__ int64_t First() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t Stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace

// input[row] = image indices[row], normalised; its label beside it. A block does whole rows.
extern "C" __global__ void gather_images(const uint8_t* pixels, const uint8_t* labels,
                                         const int64_t* indices, int64_t rows,
                                         int32_t pixels_per_image, float* input,
                                         uint8_t* batch_labels) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const uint8_t* from = pixels + indices[row] * pixels_per_image;
    float* to = input + row * pixels_per_image;
    for (int32_t i = threadIdx.x; i < pixels_per_image; i += blockDim.x) {
      to[i] = (static_cast<float>(from[i]) / 255.0f - train::kPixelMean) / train::kPixelDeviation;
    }
    if (threadIdx.x == 0) batch_labels[row] = labels[indices[row]];
  }
}

// hidden = max(hidden + bias, 0). A block does whole rows.
extern "C" __global__ void add_bias_relu(float* hidden, const float* bias, int64_t rows,
                                         int32_t columns) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float* values = hidden + row * columns;
    for (int32_t i = threadIdx.x; i < columns; i += blockDim.x) {
      const float value = values[i] + bias[i];
      values[i] = value < 0.0f ? 0.0f : value;  // NaN stays, and is seen in the loss
    }
  }
}

// scores become the probabilities softmax(scores + bias). What the rows lose (cross entropy) and
// how many have their own label's score as the highest are added to *tally.
// REQUIRES: one block of kTallyThreads: a batch's scores are few, and so the sum has one order.
extern "C" __global__ void softmax_loss(float* scores, const float* bias, const uint8_t* labels,
                                        int64_t rows, int32_t classes, train::DeviceTally* tally) {
  __shared__ double losses[train::kTallyThreads];
  __shared__ int64_t corrects[train::kTallyThreads];
  double loss = 0;
  int64_t correct = 0;
  for (int64_t row = threadIdx.x; row < rows; row += train::kTallyThreads) {
    float* score = scores + row * classes;
    int32_t best = 0;
    for (int32_t i = 0; i < classes; ++i) {
      score[i] += bias[i];
      if (score[i] > score[best]) best = i;
    }
    const float highest = score[best];
    const float own = score[labels[row]];
    float sum = 0;
    for (int32_t i = 0; i < classes; ++i) {
      score[i] = expf(score[i] - highest);
      sum += score[i];
    }
    loss += logf(sum) - (own - highest);
    for (int32_t i = 0; i < classes; ++i) score[i] /= sum;
    if (best == labels[row]) ++correct;
  }
  losses[threadIdx.x] = loss;
  corrects[threadIdx.x] = correct;
  __syncthreads();
  for (unsigned half = train::kTallyThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      losses[threadIdx.x] += losses[threadIdx.x + half];
      corrects[threadIdx.x] += corrects[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    tally->loss += losses[0];
    tally->correct += corrects[0];
  }
}

// The gradient of the loss by the scores: (probability - truth) * scale.
extern "C" __global__ void score_slope(const float* probabilities, const uint8_t* labels,
                                       int64_t rows, int32_t classes, float scale, float* slope) {
  for (int64_t i = First(); i < rows * classes; i += Stride()) {
    const float truth = i % classes == labels[i / classes] ? 1.0f : 0.0f;
    slope[i] = (probabilities[i] - truth) * scale;
  }
}

// slope = 0 where the hidden unit was off.
extern "C" __global__ void relu_slope(float* slope, const float* hidden, int64_t count) {
  for (int64_t i = First(); i < count; i += Stride()) {
    if (!(hidden[i] > 0.0f)) slope[i] = 0.0f;
  }
}

// sums[column] += the sum over the rows, always in the same order.
// REQUIRES: blocks of kColumnWidth x kColumnLanes, one for each kColumnWidth columns.
extern "C" __global__ void add_column_sums(const float* matrix, int64_t rows, int32_t columns,
                                           float* sums) {
  __shared__ float parts[train::kColumnLanes][train::kColumnWidth];
  const int32_t column = static_cast<int32_t>(blockIdx.x * train::kColumnWidth + threadIdx.x);
  float part = 0;
  if (column < columns) {
    for (int64_t row = threadIdx.y; row < rows; row += train::kColumnLanes) {
      part += matrix[row * columns + column];
    }
  }
  parts[threadIdx.y][threadIdx.x] = part;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float sum = 0;
  for (unsigned lane = 0; lane < train::kColumnLanes; ++lane) sum += parts[lane][threadIdx.x];
  sums[column] += sum;
}

// Stochastic gradient descent with momentum.
extern "C" __global__ void momentum_update(float* values, float* velocity, const float* gradient,
                                           int64_t count, float learning_rate) {
  for (int64_t i = First(); i < count; i += Stride()) {
    velocity[i] = train::kMomentum * velocity[i] + gradient[i];
    values[i] -= learning_rate * velocity[i];
  }
}
