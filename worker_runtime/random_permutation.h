// torch.randperm on the CPU, index for index. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_RANDOM_PERMUTATION_H_
#define DDPRUN_WORKER_RUNTIME_RANDOM_PERMUTATION_H_

#include <cstdint>
#include <vector>

namespace ddp::internal {

// From this size on PyTorch draws 64-bit numbers: 32-bit ones would no longer be fair.
inline constexpr int64_t kLargePermutation = UINT32_MAX / 20;

// 0 .. size - 1 in the order torch.randperm(size, generator=manual_seed(seed)) gives.
std::vector<int64_t> RandomPermutation(int64_t size, uint64_t seed);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_RANDOM_PERMUTATION_H_
