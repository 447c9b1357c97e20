#include "tests/examples/train/drawn_set.h"

#include "tools/make_digits/digits.h"

namespace ddprun::testing {

train::ImageSet DrawSet(uint64_t seed, int64_t count) {
  tools::DigitArtist artist(seed);
  train::ImageSet set{.count = count, .size = tools::kImageSize, .pixels = {}, .labels = {}};
  for (int64_t i = 0; i < count; ++i) {
    set.labels.push_back(static_cast<uint8_t>(artist.Pick(train::kClasses)));
    const tools::Image image = artist.Draw(set.labels.back());
    set.pixels.insert(set.pixels.end(), image.begin(), image.end());
  }
  return set;
}

}  // namespace ddprun::testing
