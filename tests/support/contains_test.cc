#include "tests/support/contains.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::testing {
namespace {

TEST_CASE("contains: a text is equal to each part of it, and to nothing else") {
  const std::string text = "rank 3 on node b failed";
  CHECK(text == Contains("rank 3 "));
  CHECK(text == Contains(text));
  CHECK(text != Contains("rank 4"));
  CHECK(text != Contains(text + "."));
  CHECK_FALSE(text == Contains("rank 4"));
  CHECK_FALSE(text != Contains("rank 3"));
  CHECK(std::string() != Contains("r"));
}

TEST_CASE("contains: a check that fails shows the part") {
  CHECK(doctest::toString(Contains("a \"b\"")) == "Contains(\"a \"b\"\")");
}

TEST_CASE("contains: parts are counted wherever they begin") {
  CHECK(CountOf("aaa b aaa", "aa") == 4);
  CHECK(CountOf("aaa b aaa", "c") == 0);
  CHECK(CountOf("", "c") == 0);
}

}  // namespace
}  // namespace ddprun::testing
