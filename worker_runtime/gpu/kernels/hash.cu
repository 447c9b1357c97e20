// Hashes of tensors, for replicas that are compared where they lie. Compiled to hash.ptx by
// tools/gpu_kernels.
#include <stdint.h>

#include "worker_runtime/gpu/kernels/elements.h"

namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014; the constants are Stafford's "Mix13"). A bijection: no bit is lost.
__device__ uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// *hash += the sum over i of a number that depends on i and on the bits of element i. A sum of
// integers is the same in any order.
template <typename Bits>
__device__ void Add(const Bits* bits, int64_t count, uint64_t* hash) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  uint64_t sum = 0;
  for (int64_t i = First(); i < count; i += Stride()) {
    sum += Mix(bits[i] ^ Mix(kGolden * static_cast<uint64_t>(i + 1)));
  }
  if (sum != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(hash), static_cast<unsigned long long>(sum));
  }
}

}  // namespace

extern "C" __global__ void hash_8_bits(const uint8_t* bits, int64_t count, uint64_t* hash) {
  Add(bits, count, hash);
}
extern "C" __global__ void hash_16_bits(const uint16_t* bits, int64_t count, uint64_t* hash) {
  Add(bits, count, hash);
}
extern "C" __global__ void hash_32_bits(const uint32_t* bits, int64_t count, uint64_t* hash) {
  Add(bits, count, hash);
}
extern "C" __global__ void hash_64_bits(const uint64_t* bits, int64_t count, uint64_t* hash) {
  Add(bits, count, hash);
}
