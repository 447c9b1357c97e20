#include "worker_runtime/progress_word.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <limits>

namespace ddp::internal {
namespace {

TEST_CASE("progress word: what is packed is unpacked") {
  CHECK(UnpackProgress(PackProgress(0, 1)) == ProgressShare{0, 1});
  CHECK(UnpackProgress(PackProgress(3, 7)) == ProgressShare{3, 7});
  CHECK(UnpackProgress(PackProgress(4294967295, 4294967295)) ==
        ProgressShare{4294967295u, 4294967295u});
}

TEST_CASE("progress word: what is no share of any work says nothing, or the nearest that is") {
  CHECK(PackProgress(3, 0) == 0);
  CHECK(PackProgress(3, -1) == 0);
  CHECK(UnpackProgress(0) == ProgressShare{0, 0});
  CHECK(UnpackProgress(PackProgress(8, 7)) == ProgressShare{7, 7});
  CHECK(UnpackProgress(PackProgress(-1, 7)) == ProgressShare{0, 7});
}

TEST_CASE("progress word: numbers of any size keep their share") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t all : {int64_t{1} << 32, int64_t{1'000'000'000'000}, kMost}) {
    const ProgressShare half = UnpackProgress(PackProgress(all / 2, all));
    CHECK(half.all > std::numeric_limits<uint32_t>::max() / 2);
    CHECK(half.done == half.all / 2);
    const ProgressShare whole = UnpackProgress(PackProgress(all, all));
    CHECK(whole.done == whole.all);
  }
}

}  // namespace
}  // namespace ddp::internal
