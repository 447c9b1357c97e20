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
  const auto value_of = [](std::string_view name) -> std::optional<std::string> {
    if (name == "a") return "1";
    if (name == "self") return "${a}$$";
    return std::nullopt;
  };
  const auto with = [&](std::string_view text) { return WithMacros(text, value_of); };
  CHECK(with("${a}x${a}${b}$a $ab") == "1x1${b}1 $ab");
  CHECK(with("${self}$self") == "${a}$$${a}$$");
  CHECK(with("$$a$$$a$$$$") == "$a$1$$");
  CHECK(with("$ ${ ${a ${a b} $5 $") == "$ ${ ${a ${a b} $5 $");
}

}  // namespace
}  // namespace ddprun::launcher
