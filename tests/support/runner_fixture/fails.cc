#include <doctest/doctest.h>

TEST_CASE("fails: before") { CHECK(true); }

TEST_CASE("fails: here") {
  const int seen = 3;
  INFO("context of the failure");
  CHECK(seen == 4);
  FAIL_CHECK("and says why");
}
