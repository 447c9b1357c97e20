#include "launcher/logs/line_filter.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::launcher {
namespace {

TEST_CASE("line filter: a line matches when it holds any of the texts") {
  const LineFilter filter({"apple", "a,b"});
  CHECK(filter.Matches("apple"));
  CHECK(filter.Matches("an apple a day"));
  CHECK(filter.Matches("x a,b"));
  CHECK_FALSE(filter.Matches("Apple"));
  CHECK_FALSE(filter.Matches("appl"));
  CHECK_FALSE(filter.Matches(""));
}

TEST_CASE("line filter: bytes are compared, whatever they are") {
  const LineFilter filter({std::string("\0\xff", 2), "\xc3\xa4"});
  CHECK(filter.Matches(std::string("a\0\xff", 3)));
  CHECK_FALSE(filter.Matches(std::string("a\0", 2)));
  CHECK(filter.Matches("\xff\xc3\xa4"));
}

TEST_CASE("line filter: without texts no line matches, an empty text is in every line") {
  CHECK_FALSE(LineFilter({}).Matches("x"));
  CHECK_FALSE(LineFilter({}).Matches(""));
  CHECK(LineFilter({""}).Matches("x"));
  CHECK(LineFilter({""}).Matches(""));
}

}  // namespace
}  // namespace ddprun::launcher
