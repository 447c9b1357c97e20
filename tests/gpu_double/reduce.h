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

// output[i] = sum, or average, of inputs[rank][i].
void Reduce(const std::vector<const char*>& inputs, char* output, size_t count, NcclDataType type,
            NcclRedOp op);

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);
float Bfloat16ToFloat(uint16_t bits);
uint16_t FloatToBfloat16(float value);

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_REDUCE_H_
