#include <doctest/doctest.h>

#include <string>

#include "launcher/logs/log_router.h"

namespace ddprun::launcher {
namespace {

std::string Of(std::string pattern, std::string role = "trainer") {
  return LinePrefix(
      {.role = std::move(role), .prefix_template = std::move(pattern), .hostname = "node3"}, 1, 17);
}

TEST_CASE("line prefix: macros are replaced, with braces or without") {
  CHECK(Of("[${role_name}${local_rank}]:") == "[trainer1]:");
  CHECK(Of("${hostname}/${rank}/${local_rank} ") == "node3/17/1 ");
  CHECK(Of("$rank:$local_rank ") == "17:1 ");
  CHECK(Of("${rank}${rank}") == "1717");
  CHECK(Of("plain") == "plain");
  CHECK(Of("") == "");
}

TEST_CASE("line prefix: two dollars are one") {
  CHECK(Of("$$rank") == "$rank");
  CHECK(Of("$$${rank}") == "$17");
  CHECK(Of("$$$$") == "$$");
}

TEST_CASE("line prefix: what is no macro stays as it is") {
  for (const std::string text : {"${other}", "$other", "${rank", "${}", "$", "$ rank", "${ rank}",
                                 "${rank }", "$1rank", "${RANK}", "$ranks", "100 %", "}{", "${$"}) {
    CAPTURE(text);
    CHECK(Of(text) == text);
  }
  CHECK(Of("${other${rank}}") == "${other17}");
}

TEST_CASE("line prefix: a value is not looked into") {
  CHECK(Of("${role_name}|${rank}", "${rank}$$") == "${rank}$$|17");
}

}  // namespace
}  // namespace ddprun::launcher
