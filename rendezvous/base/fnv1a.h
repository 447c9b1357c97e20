// FNV-1a, 64 bits: tells accidents (a torn file, another list) apart, and no enemy's work. [pure]
#ifndef DDPRUN_RENDEZVOUS_BASE_FNV1A_H_
#define DDPRUN_RENDEZVOUS_BASE_FNV1A_H_

#include <cstddef>
#include <cstdint>

namespace ddprun {

class Fnv1a {
 public:
  void Add(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) value_ = (value_ ^ p[i]) * 0x100000001b3u;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_FNV1A_H_
