#include "worker_runtime/comm/name_ranks.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

namespace ddp::internal {
namespace {

// Ranks 2, 3, ...
std::string Named(size_t count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 2);
  return NameRanks(ranks);
}

TEST_CASE("name ranks: one, two, several") {
  CHECK(Named(1) == "rank 2");
  CHECK(Named(2) == "ranks 2 and 3");
  CHECK(Named(3) == "ranks 2, 3 and 4");
  CHECK(NameRanks({7, 0}) == "ranks 7 and 0");
}

// "and 1 more" would be as long as the rank itself.
TEST_CASE("name ranks: of more than nine eight are named, the others counted") {
  CHECK(Named(9) == "ranks 2, 3, 4, 5, 6, 7, 8, 9 and 10");
  CHECK(Named(10) == "ranks 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
  CHECK(Named(28) == "ranks 2, 3, 4, 5, 6, 7, 8, 9 and 20 more");
}

}  // namespace
}  // namespace ddp::internal
