// Draws handwritten-looking digits.
#ifndef DDPRUN_TOOLS_MAKE_DIGITS_DIGITS_H_
#define DDPRUN_TOOLS_MAKE_DIGITS_DIGITS_H_

#include <array>
#include <cstdint>
#include <random>

namespace ddprun::tools {

inline constexpr int kImageSize = 28;

using Image = std::array<uint8_t, kImageSize * kImageSize>;  // rows, 0 = background, 255 = ink

// An endless series of digits, the same for the same seed on every machine: only operations that
// IEEE 754 rounds exactly are used, no library functions.
class DigitArtist {
 public:
  explicit DigitArtist(uint64_t seed) : random_(seed) {}

  // REQUIRES: 0 <= digit <= 9. One of the digit's shapes with jittered points, rotated, sheared,
  // scaled and moved, drawn with a pen of random width, with stray strokes and noise.
  Image Draw(int digit);
  // Uniform in 0 .. bound - 1.
  int Pick(int bound);

 private:
  double Uniform(double low, double high);
  double Normal(double deviation);

  std::mt19937_64 random_;
};

}  // namespace ddprun::tools

#endif  // DDPRUN_TOOLS_MAKE_DIGITS_DIGITS_H_
