// The kernels of layers.cu as the host calls them. Plain C++: nvcc reads it too, and a test
// compares the signatures with the kernels' own.
#ifndef DDPRUN_EXAMPLES_TRAIN_GPU_LAYERS_H_
#define DDPRUN_EXAMPLES_TRAIN_GPU_LAYERS_H_

#include <stdint.h>

namespace train {

// What forward passes add up on the device.
struct DeviceTally {
  double loss;
  int64_t correct;
};

constexpr unsigned kTallyThreads = 256;                  // of softmax_loss's one block
constexpr unsigned kColumnWidth = 32, kColumnLanes = 8;  // of add_column_sums's blocks

using GatherImages = void(const uint8_t* pixels, const uint8_t* labels, const int64_t* indices,
                          int64_t rows, int32_t pixels_per_image, float* input,
                          uint8_t* batch_labels);
using AddBiasRelu = void(float* hidden, const float* bias, int64_t rows, int32_t columns);
using SoftmaxLoss = void(float* scores, const float* bias, const uint8_t* labels, int64_t rows,
                         int32_t classes, DeviceTally* tally);
using ScoreSlope = void(const float* probabilities, const uint8_t* labels, int64_t rows,
                        int32_t classes, float scale, float* slope);
using ReluSlope = void(float* slope, const float* hidden, int64_t count);
using AddColumnSums = void(const float* matrix, int64_t rows, int32_t columns, float* sums);
using MomentumUpdate = void(float* values, float* velocity, const float* gradient, int64_t count,
                            float learning_rate);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_GPU_LAYERS_H_
