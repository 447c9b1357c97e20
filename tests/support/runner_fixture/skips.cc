#include <doctest/doctest.h>

#include "tests/support/skip.h"

using ddprun::testing::SkipTest;

TEST_CASE("skips: twice in one case") {
  SkipTest("no \"torch\"");
  return SkipTest("no <GPU>");
}

TEST_CASE("skips: in one of two subcases") {
  SUBCASE("skipped") { return SkipTest("no etcd"); }
  SUBCASE("run") { CHECK(true); }
}

TEST_CASE("skips: not this one") { CHECK(true); }
