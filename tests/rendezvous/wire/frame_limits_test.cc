#include "rendezvous/wire/frame_limits.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/rendezvous/server/http2_frames.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

const std::string kPing = Frame(kPingFrame, 0, 0, std::string(8, 'x'));

// How many of `frame` are taken, all at `now`, by limits as these are.
int CountTaken(FrameLimits limits, TimePoint now, bool has_joined, const std::string& frame) {
  int taken = 0;
  while (taken < 1'000'000 && limits.Takes(now, has_joined, frame)) ++taken;
  return taken;
}

TEST_CASE("frame limits: a call and its data are taken, in whatever pieces they come") {
  const std::string all =
      Greeting() + Call(1, "/x") + Frame(kDataFrame, 0, 1, std::string(500, 'x'));
  for (size_t piece = 1; piece <= all.size(); ++piece) {
    FrameLimits limits;
    for (size_t at = 0; at < all.size(); at += piece) {
      REQUIRE(limits.Takes(TimePoint{}, false, all.substr(at, piece)));
    }
    // The pieces were put together right: this is the second stream, and that one too many.
    REQUIRE(limits.Takes(TimePoint{}, false, Call(3, "/x")));
    REQUIRE_FALSE(limits.Takes(TimePoint{}, false, Call(5, "/x")));
  }
}

TEST_CASE("frame limits: frames come in bounded numbers, more of them from who has joined") {
  FrameLimits limits;
  REQUIRE(limits.Takes(TimePoint{}, true, Greeting()));
  const int strangers = CountTaken(limits, TimePoint{}, false, kPing);
  CHECK(strangers > FrameLimits::kFramesBeforeJoin / 2);
  CHECK(strangers < 1.1 * FrameLimits::kFramesBeforeJoin);
  const int agents = CountTaken(limits, TimePoint{}, true, kPing);
  CHECK(agents > FrameLimits::kFrames / 2);
  CHECK(agents < 1.1 * FrameLimits::kFrames);
  // A second later there is room for some more, and not for all again, however long it waits.
  for (int i = 0; i < agents; ++i) REQUIRE(limits.Takes(TimePoint{}, true, kPing));
  const TimePoint later = TimePoint{} + seconds(1);
  CHECK(CountTaken(limits, later, true, kPing) < 1.1 * FrameLimits::kFramesPerSecond);
  CHECK(CountTaken(limits, later + seconds(100'000), true, kPing) < 1.1 * FrameLimits::kFrames);
}

TEST_CASE("frame limits: an agent's heartbeats and answers are never too many") {
  FrameLimits limits;
  TimePoint now{};
  REQUIRE(limits.Takes(now, false, Greeting() + Call(1, "/x")));
  const std::string beat = Frame(kDataFrame, 0, 1, std::string(30, 'x'));
  for (int second = 0; second < 100'000; ++second) {
    now += seconds(1);
    REQUIRE(limits.Takes(now, true, beat + kPing + Frame(kWindowUpdateFrame, 0, 0, "1234")));
  }
  // Answers of 64 MiB at once, in frames of 16 KiB.
  const std::string part = Frame(kDataFrame, 0, 1, std::string(16384, 'x'));
  for (int i = 0; i < 4096; ++i) REQUIRE(limits.Takes(now, true, part));
}

TEST_CASE("frame limits: who reads much may answer with as many frames as that takes") {
  FrameLimits limits;
  REQUIRE(limits.Takes(TimePoint{}, false, Greeting() + Call(1, "/x")));
  const std::string update = Frame(kWindowUpdateFrame, 0, 0, "1234");
  // An asker, who never joins.
  for (int i = 0; i < 4096; ++i) {
    limits.Sent(16384);
    REQUIRE(limits.Takes(TimePoint{}, false, update + update + kPing));
  }
}

TEST_CASE("frame limits: a header block has a largest size, whatever frames it comes in") {
  FrameLimits limits;
  REQUIRE(limits.Takes(TimePoint{}, true, Greeting()));
  REQUIRE(limits.Takes(TimePoint{}, true, Frame(kHeadersFrame, 0, 1, std::string(8000, 'x'))));
  REQUIRE(limits.Takes(TimePoint{}, true, Frame(kContinuationFrame, 0, 1, std::string(8000, 'x'))));
  CHECK_FALSE(
      limits.Takes(TimePoint{}, true, Frame(kContinuationFrame, 0, 1, std::string(1000, 'x'))));
}

TEST_CASE(
    "frame limits: nothing comes between the frames of a header block, and clients push none") {
  FrameLimits pings, continues, pushes;
  for (FrameLimits* limits : {&pings, &continues, &pushes}) {
    REQUIRE(limits->Takes(TimePoint{}, true, Greeting()));
  }
  REQUIRE(pings.Takes(TimePoint{}, true, Frame(kHeadersFrame, 0, 1, "x")));
  CHECK_FALSE(pings.Takes(TimePoint{}, true, kPing));
  CHECK_FALSE(continues.Takes(TimePoint{}, true, Frame(kContinuationFrame, kEndHeaders, 1, "x")));
  CHECK_FALSE(pushes.Takes(TimePoint{}, true, Frame(5, kEndHeaders, 1, "x")));
}

TEST_CASE("frame limits: a stranger's bytes are bounded by the size of a join") {
  FrameLimits limits;
  REQUIRE(limits.Takes(TimePoint{}, false, Greeting() + Call(1, "/x")));
  const std::string part = Frame(kDataFrame, 0, 1, std::string(16384, 'x'));
  for (int i = 0; i < 4; ++i) CHECK(limits.Takes(TimePoint{}, false, part));
  CHECK_FALSE(limits.Takes(TimePoint{}, false, part + part));
}

}  // namespace
}  // namespace ddprun::rendezvous
