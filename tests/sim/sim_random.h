// The simulator's random numbers: small, seeded, the same on every machine.
#ifndef DDPRUN_TESTS_SIM_SIM_RANDOM_H_
#define DDPRUN_TESTS_SIM_SIM_RANDOM_H_

#include <cstdint>

#include "rendezvous/base/time.h"

namespace ddprun::sim {

// SplitMix64's finaliser: distant results for neighbouring arguments.
inline uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}
inline uint64_t Mix(uint64_t a, uint64_t b) { return Mix(Mix(a) ^ b); }
inline uint64_t Mix(uint64_t a, uint64_t b, uint64_t c) { return Mix(Mix(a, b), c); }

// One stream of numbers. Every part of a run has a stream of its own, seeded by what it is: that a
// fault is left out then changes only what follows from that fault.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}

  uint64_t Next() { return Mix(state_++); }
  // 0 <= result < bound. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // from <= result <= to.
  int Between(int from, int to) {
    return from + static_cast<int>(Below(static_cast<uint64_t>(to - from) + 1));
  }
  Duration Between(Duration from, Duration to) {
    return from +
           Duration(static_cast<int64_t>(Below(static_cast<uint64_t>((to - from).count()) + 1)));
  }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }

 private:
  uint64_t state_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_RANDOM_H_
