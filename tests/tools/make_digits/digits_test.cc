#include "tools/make_digits/digits.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

namespace ddprun::tools {
namespace {

struct Labelled {
  std::vector<Image> images;
  std::vector<int> labels;
};

Labelled DrawSet(uint64_t seed, int count) {
  DigitArtist artist(seed);
  Labelled set;
  for (int i = 0; i < count; ++i) {
    set.labels.push_back(artist.Pick(10));
    set.images.push_back(artist.Draw(set.labels.back()));
  }
  return set;
}

using Mean = std::array<double, kImageSize * kImageSize>;

std::array<Mean, 10> ClassMeans(const Labelled& set) {
  std::array<Mean, 10> means{};
  std::array<int, 10> counts{};
  for (size_t i = 0; i < set.images.size(); ++i) {
    ++counts[set.labels[i]];
    for (size_t pixel = 0; pixel < Mean().size(); ++pixel) {
      means[set.labels[i]][pixel] += set.images[i][pixel];
    }
  }
  for (int digit = 0; digit < 10; ++digit) {
    REQUIRE(counts[digit] > 0);
    for (double& value : means[digit]) value /= counts[digit];
  }
  return means;
}

int Nearest(const std::array<Mean, 10>& means, const Image& image) {
  int best = 0;
  double least = std::numeric_limits<double>::max();
  for (int digit = 0; digit < 10; ++digit) {
    double distance = 0;
    for (size_t pixel = 0; pixel < image.size(); ++pixel) {
      const double difference = image[pixel] - means[digit][pixel];
      distance += difference * difference;
    }
    if (distance < least) {
      least = distance;
      best = digit;
    }
  }
  return best;
}

// The default data set: a network must learn more than what the average digit looks like.
TEST_CASE("digits: the nearest class mean knows fewer than 85 % of the test images") {
  const std::array<Mean, 10> means = ClassMeans(DrawSet(1, 10'000));
  const Labelled test = DrawSet(uint64_t{1} ^ 0x9e3779b97f4a7c15u, 2'000);
  int correct = 0;
  for (size_t i = 0; i < test.images.size(); ++i) {
    correct += Nearest(means, test.images[i]) == test.labels[i] ? 1 : 0;
  }
  const double accuracy = correct / 2000.0;
  INFO(accuracy);
  CHECK(accuracy < 0.85);
  CHECK(accuracy > 0.5);  // still digits
}

TEST_CASE("digits: a seed always gives the same bytes") {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Image& image : DrawSet(42, 200).images) {
    for (const uint8_t byte : image) hash = (hash ^ byte) * 0x100000001b3u;
  }
  CHECK(hash == 17311117453776734096u);
}

TEST_CASE("digits: other seeds give other images, and no image comes twice") {
  const Labelled a = DrawSet(1, 100), b = DrawSet(2, 100);
  for (size_t i = 0; i < 100; ++i) {
    for (size_t j = 0; j < 100; ++j) {
      REQUIRE(a.images[i] != b.images[j]);
      if (i != j) REQUIRE(a.images[i] != a.images[j]);
    }
  }
}

}  // namespace
}  // namespace ddprun::tools
