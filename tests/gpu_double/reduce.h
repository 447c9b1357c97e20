// Arithmetic on NCCL's types: in rank order, in float for the half types, rounded once.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_REDUCE_H_
#define DDPRUN_TESTS_GPU_DOUBLE_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/gpu_double/exports.h"

namespace ddprun::gpu_double {

// Bytes of an element; 0 for a type that the double does not know.
size_t SizeOf(NcclDataType type);
const char* NameOf(NcclDataType type);

// output[i] = sum, or average, of inputs[rank][i]. `rounds_average`: as NCCL, which multiplies each
// float by 1 / ranks before it sums, both rounded to the type; otherwise the sum is divided.
void Reduce(const std::vector<const char*>& inputs, char* output, size_t count, NcclDataType type,
            NcclRedOp op, bool rounds_average);

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);
float Bfloat16ToFloat(uint16_t bits);
uint16_t FloatToBfloat16(float value);

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_REDUCE_H_
