#include "bench/caps.h"

#include <doctest/doctest.h>

#include "bench/mlp.h"

namespace ddprun::bench {
namespace {

using Groups = std::vector<std::vector<double>>;

constexpr size_t kMiBOfFloats = (1 << 20) / sizeof(float);

TEST_CASE("caps: those that give the network the same buckets are one group") {
  std::vector<size_t> parameters;
  for (const MlpParameter& parameter : InitialParameters({})) {
    parameters.push_back(parameter.values.size());
  }
  CHECK(CapsByLayout({0.25, 0.5, 1, 2, 4, 25}, parameters) ==
        Groups{{0.25, 0.5}, {1}, {2}, {4, 25}});
}

TEST_CASE("caps: a bucket is closed once it holds its limit, and the first at 1 MiB") {
  // The last one is the first bucket; of the others 2 MiB take two, 3 and 4 all three.
  CHECK(CapsByLayout({1, 2, 3, 4}, std::vector<size_t>(4, kMiBOfFloats)) ==
        Groups{{1}, {2}, {3, 4}});
  CHECK(LimitsOf(4 << 20).first_bytes == 1 << 20);
  CHECK(LimitsOf(1000).first_bytes == 1000);
}

TEST_CASE("caps: as many buckets of other parameters are another layout") {
  // From the last to the first, after the first bucket: 1+2, 1 against 1+2+... with a larger cap.
  const std::vector<size_t> parameters = {kMiBOfFloats, kMiBOfFloats, 2 * kMiBOfFloats,
                                          kMiBOfFloats, kMiBOfFloats};
  const Groups groups = CapsByLayout({3, 4}, parameters);
  CHECK(groups == Groups{{3}, {4}});
}

TEST_CASE("caps: without parameters all are alike, and no cap is no group") {
  CHECK(CapsByLayout({1, 2}, {}) == Groups{{1, 2}});
  CHECK(CapsByLayout({}, {1}).empty());
}

}  // namespace
}  // namespace ddprun::bench
