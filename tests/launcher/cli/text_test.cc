#include "launcher/cli/text.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::launcher {
namespace {

TEST_CASE("text: a quoted value is cut at 200 bytes") {
  CHECK(Quoted("a b") == "'a b'");
  CHECK(Quoted(std::string(200, 'x')) == "'" + std::string(200, 'x') + "'");
  CHECK(Quoted(std::string(201, 'x')) == "'" + std::string(200, 'x') + "...'");
}

TEST_CASE("text: the nearest name is found when one is near") {
  const std::vector<std::string> names = {"nnodes", "node_rank", "tee"};
  CHECK(NearestName("node-rnak", names) == "node_rank");
  CHECK(NearestName("nodes", names) == "nnodes");
  CHECK(NearestName("zzzzzz", names) == "");
  CHECK(NearestName("", names) == "");
  CHECK(NearestName(std::string(1 << 20, 'n'), names) == "");
}

TEST_CASE("text: macros are replaced everywhere, others stay") {
  CHECK(ReplaceMacro("${a}x${a}${b}$a", "a", "1") == "1x1${b}$a");
  CHECK(ReplaceMacro("${a}", "a", "${a}") == "${a}");
}

}  // namespace
}  // namespace ddprun::launcher
