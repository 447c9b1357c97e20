#include "launcher/cli/text.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::launcher {
namespace {

TEST_CASE("text: control characters and broken UTF-8 are escaped, all else stays") {
  CHECK(EscapeControl("a\tb \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "a\tb \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(EscapeControl(std::string_view("\0\n\r\x1b\x7f", 5)) == "\\x00\\n\\r\\x1b\\x7f");
  CHECK(EscapeControl("\xc2\x9b") == "\\xc2\\x9b");  // C1: CSI in one character
  CHECK(EscapeControl("\xff\xc3") == "\\xff\\xc3");  // no lead byte; cut short
  CHECK(EscapeControl("\xc0\x8a") == "\\xc0\\x8a");  // overlong newline
  CHECK(EscapeControl("\xe0\x80\x8a") == "\\xe0\\x80\\x8a");
  CHECK(EscapeControl("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // surrogate
  CHECK(EscapeControl("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

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
