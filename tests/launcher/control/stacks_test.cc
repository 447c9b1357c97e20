#include "launcher/control/stacks.h"

#include <doctest/doctest.h>

#include <vector>

namespace ddprun::launcher {
namespace {

TEST_CASE("stacks: another node tells of ranks, and of nothing that is none") {
  const std::vector<RankStack> stacks = StacksFromJson(
      R"x([{"rank":18446744073709551615},{"rank":9223372036854775808},{"rank":16777217},)x"
      R"x({"rank":-1},{"rank":2.5},{"rank":7,"where":"in main (t.py:3)"}])x");
  REQUIRE(stacks.size() == 1);
  CHECK(stacks[0] == RankStack{.rank = 7, .where = "in main (t.py:3)", .unknown_why = ""});
}

}  // namespace
}  // namespace ddprun::launcher
