#include "launcher/placement/cpu_set.h"

#include <doctest/doctest.h>

#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("cpu set: the kernel's lists are read and written") {
  const std::pair<const char*, CpuSet> rows[] = {
      {"", {}}, {" \n", {}}, {"0\n", {0}}, {"0-2,4,6-7", {0, 1, 2, 4, 6, 7}}, {"9,3", {3, 9}},
  };
  for (const auto& [text, cpus] : rows) {
    const absl::StatusOr<CpuSet> read = ParseCpuList(text);
    REQUIRE(read.ok());
    CHECK(*read == cpus);
  }
  CHECK(FormatCpuList({}) == "");
  CHECK(FormatCpuList({0, 1, 2, 4, 6, 7}) == "0-2,4,6-7");
  CHECK(Intersection({1, 2, 3}, {2, 3, 4}) == CpuSet{2, 3});
}

TEST_CASE("cpu set: anything else is an error that quotes it, however large its numbers") {
  for (const char* text : {"x", "-1", "1-", "-", "3-1", "1,", ",1", "1 2", "0-4294967296", "65536",
                           "0x1", "+1", "1\x1b[2J"}) {
    const absl::StatusOr<CpuSet> read = ParseCpuList(text);
    CAPTURE(text);
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().message() == Contains("is no list of CPUs"));
    CHECK(read.status().message() != Contains("\x1b"));
  }
}

}  // namespace
}  // namespace ddprun::launcher
