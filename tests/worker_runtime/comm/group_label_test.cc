#include "worker_runtime/comm/group_label.h"

#include <doctest/doctest.h>

#include <numeric>

#include "worker_runtime/counters_page.h"

namespace ddp::internal {
namespace {

TEST_CASE("group label: ranks in a row are told by the first and the last") {
  CHECK(NameRankRanges({3}) == "rank 3");
  CHECK(NameRankRanges({0, 1}) == "ranks 0-1");
  CHECK(NameRankRanges({0, 1, 2, 3}) == "ranks 0-3");
  CHECK(NameRankRanges({0, 2}) == "ranks 0, 2");
  CHECK(NameRankRanges({0, 2, 5, 6, 7, 9}) == "ranks 0, 2, 5-7, 9");
}

TEST_CASE("group label: of many ranks that are not in a row the last are counted") {
  std::vector<int> even(64);
  for (size_t i = 0; i < even.size(); ++i) even[i] = 2 * static_cast<int>(i);
  CHECK(NameRankRanges(even) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16 and 55 more");
}

TEST_CASE("group label: the longest name has room in a slot of the page") {
  std::vector<int> odd(100'000);
  for (size_t i = 0; i < odd.size(); ++i) odd[i] = 1'000'000 + 2 * static_cast<int>(i);
  CHECK(NameRankRanges(odd).size() <= 56);
  CHECK(("nccl, " + NameRankRanges(odd)).size() < kGroupNameBytes);
}

TEST_CASE("group label: a key is of one forming and one backend") {
  const GroupLabel label = MakeGroupLabel("a plan", {1, 0});
  CHECK(label.ranks == "ranks 0-1");
  CHECK(label.key != 0);
  CHECK(label.key == MakeGroupLabel("a plan", {0, 1}).key);
  CHECK(label.key != MakeGroupLabel("another", {0, 1}).key);
  CHECK(KeyOf(label, "shm") == KeyOf(label, "shm"));
  CHECK(KeyOf(label, "shm") != KeyOf(label, "nccl"));
}

}  // namespace
}  // namespace ddp::internal
