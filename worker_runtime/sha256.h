// SHA-256 (FIPS 180-4). [pure]
#ifndef DDPRUN_WORKER_RUNTIME_SHA256_H_
#define DDPRUN_WORKER_RUNTIME_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::internal {

// Add any number of pieces, then take the digest once. Guards checkpoints and names weights; not
// used for secrets, which is why it need not run in constant time.
class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  void Add(const void* data, size_t bytes);
  // Ends the hash. REQUIRES: not called before.
  Digest Finish();

 private:
  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_;  // the first total_ % 64 bytes wait for the rest
  uint64_t total_ = 0;
};

// 64 lower-case digits.
std::string ToHex(const Sha256::Digest& digest);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_SHA256_H_
