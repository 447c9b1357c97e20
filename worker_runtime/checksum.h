// XXH3 with 128 bits: guards checkpoints against damage and compares weights.
#ifndef DDPRUN_WORKER_RUNTIME_CHECKSUM_H_
#define DDPRUN_WORKER_RUNTIME_CHECKSUM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddp::internal {

// Add any number of pieces, then take the digest. It finds accidents; whoever wants to can make two
// texts of one digest. A processor computes it faster than it reads memory, so that the other
// ranks, which wait while rank 0 saves, wait for the disk alone.
class Checksum {
 public:
  using Digest = std::array<uint8_t, 16>;  // XXH128_canonical_t

  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void Add(const void* data, size_t bytes);
  // Of all that was added so far.
  Digest Get() const;

 private:
  struct State;  // the library's, kept out of this header
  std::unique_ptr<State> state_;
};

// 32 lower-case digits.
std::string ToHex(const Checksum::Digest& digest);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_CHECKSUM_H_
