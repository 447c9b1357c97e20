// The kernels of mlp.cu as the host calls them. Plain C++: nvcc reads it too, and a test compares
// the signatures with the kernels' own.
#ifndef DDPRUN_BENCH_GPU_MLP_KERNELS_H_
#define DDPRUN_BENCH_GPU_MLP_KERNELS_H_

#include <stdint.h>

namespace ddprun::bench {

// A block of kTile x kTile threads makes a square of so many elements of a product.
constexpr int32_t kTile = 16;

// c (rows x columns), by an a of `inner` columns, or rows where it is read transposed.
using MultiplyMatrices = void(const float* a, const float* b, float* c, int32_t rows,
                              int32_t columns, int32_t inner);
using AddBias = void(float* outputs, const float* bias, int64_t count, int32_t columns,
                     int32_t has_relu);
using SoftmaxSlope = void(float* scores, const uint8_t* labels, double* losses, int32_t rows,
                          int32_t classes, float total, float factor);
using AddColumnSums = void(const float* matrix, int32_t rows, int32_t columns, float* sums);
using ReluSlope = void(float* slope, const float* outputs, int64_t count);
using MomentumUpdate = void(float* values, const float* gradient, float* velocity, int64_t count,
                            float learning_rate, float momentum);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_GPU_MLP_KERNELS_H_
