#include "bench/median.h"

#include <doctest/doctest.h>

namespace ddprun::bench {
namespace {

TEST_CASE("median: of none it is 0, of an even number the mean of two") {
  CHECK(Median({}) == 0);
  CHECK(Median({3}) == 3);
  CHECK(Median({5, 1, 3}) == 3);
  CHECK(Median({4, 1, 3, 2}) == 2.5);
}

}  // namespace
}  // namespace ddprun::bench
