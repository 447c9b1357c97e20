#include "worker_runtime/comm/shm/own_core.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

namespace ddp::internal {
namespace {

bool HaveCoreEachOf(std::initializer_list<std::vector<size_t>> ranks) {
  std::vector<cpu_set_t> allowed;
  for (const std::vector<size_t>& cpus : ranks) {
    CPU_ZERO(&allowed.emplace_back());
    for (const size_t cpu : cpus) CPU_SET(cpu, &allowed.back());
  }
  return HaveCoreEach(allowed);
}

TEST_CASE("own core: ranks that may run everywhere, as many as there are CPUs") {
  CHECK(HaveCoreEachOf({{0, 1}, {0, 1}}));
  CHECK_FALSE(HaveCoreEachOf({{0, 1}, {0, 1}, {0, 1}}));
  CHECK(HaveCoreEachOf({{7}}));
}

TEST_CASE("own core: ranks that are bound, each to its own, or two to the same") {
  CHECK(HaveCoreEachOf({{0}, {1}, {2}, {1023}}));
  CHECK_FALSE(HaveCoreEachOf({{0}, {1}, {1}, {3}}));
  CHECK(HaveCoreEachOf({{0, 1}, {2, 3}, {0, 1}, {2, 3}}));
  CHECK_FALSE(HaveCoreEachOf({{0, 1}, {2, 3}, {0, 1}, {0, 1}}));
}

TEST_CASE("own core: some bound within what others may use") {
  CHECK(HaveCoreEachOf({{0}, {0, 1, 2}, {0, 1, 2}}));
  CHECK_FALSE(HaveCoreEachOf({{0}, {0}, {0, 1, 2, 3}, {0, 1, 2, 3}}));
  CHECK_FALSE(HaveCoreEachOf({{0}, {1}, {2}, {0, 1, 2}}));
}

TEST_CASE("own core: sets that overlap; one that is not known") {
  CHECK_FALSE(HaveCoreEachOf({{0, 1}, {1, 2}, {0, 2}, {0, 1}}));
  CHECK_FALSE(HaveCoreEachOf({{0, 1}, {}}));
}

}  // namespace
}  // namespace ddp::internal
