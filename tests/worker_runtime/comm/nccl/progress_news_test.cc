#include "worker_runtime/comm/nccl/progress_news.h"

#include <doctest/doctest.h>

namespace ddp::internal {
namespace {

using std::chrono::milliseconds;

struct Teller {
  bool Waits(uint64_t sequence, int at_ms, bool is_stuck) {
    return Tell({.sequence = sequence, .is_waiting = true}, at_ms, is_stuck);
  }
  bool WasThrough(uint64_t sequence, int at_ms) {
    return Tell({.sequence = sequence}, at_ms, false);
  }
  bool Tell(const ProgressNews::Place& place, int at_ms, bool is_stuck) {
    return news.ShouldTell(place, ProgressNews::TimePoint(milliseconds(at_ms)), is_stuck,
                           milliseconds(100));
  }
  ProgressNews news;
};

TEST_CASE("progress news: a quick rank tells nothing") {
  Teller rank;
  CHECK_FALSE(rank.WasThrough(0, 1000));
  for (int i = 1; i < 10; ++i) {
    CHECK_FALSE(rank.Waits(static_cast<uint64_t>(i), 1000 + 150 * i, false));
    CHECK_FALSE(rank.WasThrough(static_cast<uint64_t>(i), 1090 + 150 * i));
  }
}

TEST_CASE("progress news: a rank that begins late tells that it has begun") {
  Teller rank;
  CHECK_FALSE(rank.WasThrough(0, 0));
  CHECK_FALSE(rank.WasThrough(0, 1000));  // there is nothing to tell
  CHECK(rank.Waits(1, 1010, false));
  CHECK_FALSE(rank.Waits(2, 1020, false));
}

TEST_CASE("progress news: a rank that is stuck tells it once, and where it goes then") {
  Teller rank;
  CHECK_FALSE(rank.Waits(5, 0, false));
  CHECK(rank.Waits(5, 500, true));
  CHECK_FALSE(rank.Waits(5, 520, true));
  CHECK_FALSE(rank.WasThrough(5, 540));  // the others know as much
  CHECK(rank.Waits(6, 560, false));
  CHECK_FALSE(rank.WasThrough(6, 580));
  CHECK_FALSE(rank.Waits(7, 600, false));
}

TEST_CASE("progress news: a rank with nothing under way tells what it has been through") {
  Teller rank;
  CHECK_FALSE(rank.WasThrough(5, 0));
  CHECK_FALSE(rank.WasThrough(5, 99));
  CHECK(rank.WasThrough(5, 100));
  CHECK_FALSE(rank.WasThrough(5, 5000));
  CHECK(rank.news.is_awaited());
  CHECK(rank.Waits(6, 6000, false));
  CHECK_FALSE(rank.Waits(7, 6020, false));
}

}  // namespace
}  // namespace ddp::internal
