#include "launcher/status/judge_words.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_CASE("numbers: thousands are set apart, up to the largest") {
  CHECK(NumberText(uint64_t{0}) == "0");
  CHECK(NumberText(uint64_t{999}) == "999");
  CHECK(NumberText(uint64_t{1000}) == "1,000");
  CHECK(NumberText(uint64_t{88123}) == "88,123");
  CHECK(NumberText(uint64_t{1} << 63) == "9,223,372,036,854,775,808");
  CHECK(NumberText(int64_t{-18240}) == "-18,240");
  CHECK(NumberText(std::numeric_limits<int64_t>::min()) == "-9,223,372,036,854,775,808");
}

TEST_CASE("rates: three digits, or all before the point") {
  CHECK(RateText(0) == "0.00");
  CHECK(RateText(4.123) == "4.12");
  CHECK(RateText(9.996) == "10.0");
  CHECK(RateText(41.23) == "41.2");
  CHECK(RateText(99.96) == "100");
  CHECK(RateText(18240.4) == "18,240");
  CHECK(RateText(1e30) == "1,000,000,000,000,000,000");
}

TEST_CASE("spans: two units, rounded down") {
  CHECK(SpanText(0.9) == "0 s");
  CHECK(SpanText(59.9) == "59 s");
  CHECK(SpanText(60) == "1 min");
  CHECK(SpanText(130) == "2 min 10 s");
  CHECK(SpanText(3600) == "1 h");
  CHECK(SpanText(11520) == "3 h 12 min");
  CHECK(SpanText(2 * 86400 + 3 * 3600 + 59) == "2 d 3 h");
  for (const double bad : {kNan, kInfinity, -kInfinity, -1.0}) CHECK(SpanText(bad) == "0 s");
  CHECK(SpanText(1e300) == "11574 d 1 h");
}

TEST_CASE("steps: milliseconds, seconds where there are many") {
  CHECK(StepTimeText(0.00456) == "4.56 ms");
  CHECK(StepTimeText(0.31) == "310 ms");
  CHECK(StepTimeText(0.9994) == "999 ms");
  CHECK(StepTimeText(0.9996) == "1.00 s");
  CHECK(StepTimeText(9.996) == "10.0 s");
  CHECK(StepTimeText(12.34) == "12.3 s");
  CHECK(StepTimeText(kNan) == "0.00 ms");
}

TEST_CASE("lists: what is too long for a sentence is counted") {
  CHECK(SomeRanksText({5}) == "rank 5");
  CHECK(SomeRanksText({0, 1, 2, 9}) == "ranks 0-2, 9");
  std::vector<int> odd, all;
  for (int i = 0; i < 100000; ++i) all.push_back(i);
  for (int i = 0; i < 20; ++i) odd.push_back(2 * i + 1);
  CHECK(SomeRanksText(all) == "ranks 0-99999");
  CHECK(SomeRanksText(odd) == "ranks 1, 3, 5, 7, 9, 11, 13, 15 and 12 more");
  CHECK(SomeNamesText({"a", "b"}) == "a, b");
  CHECK(SomeNamesText(std::vector<std::string>(10, "x")) == "x, x, x, x, x, x, x, x and 2 more");
}

}  // namespace
}  // namespace ddprun::launcher
