#include "worker_runtime/random_permutation.h"

#include <numeric>
#include <random>
#include <utility>

namespace ddp::internal {

std::vector<int64_t> RandomPermutation(int64_t size, uint64_t seed) {
  // PyTorch's generator is this one, seeded with the low 32 bits.
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<int64_t> order(static_cast<size_t>(size));
  if (size < kLargePermutation) {
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = 0; i < size - 1; ++i) {
      const int64_t other = i + static_cast<int64_t>(generator() % static_cast<uint64_t>(size - i));
      std::swap(order[i], order[other]);
    }
    return order;
  }
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t high = generator();
    const uint64_t drawn = (high << 32) | generator();
    const int64_t other = static_cast<int64_t>(drawn % static_cast<uint64_t>(i + 1));
    order[i] = order[other];
    order[other] = i;
  }
  return order;
}

}  // namespace ddp::internal
