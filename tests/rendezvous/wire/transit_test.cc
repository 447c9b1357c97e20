// How long messages were under way.
#include "rendezvous/wire/transit.h"

#include <doctest/doctest.h>

#include <variant>

namespace ddprun::rendezvous {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// An agent whose clock began `offset` after ours, and the stream from it.
struct Stream {
  Duration offset = seconds(1000);
  Transit transit;

  // The age, on receipt, of a failure of which the agent said 5 s.
  Duration AgeOf(Duration sent_at, Duration received_at) {
    Event event = WorkersFailed{.stamp = {}, .report = {}, .age = seconds(5)};
    transit.Correct(TimePoint(hours(9) + received_at), hours(9) - offset + sent_at, event);
    return std::get<WorkersFailed>(event).age;
  }
};

TEST_CASE("transit: the first message says nothing, a slower one is as much older") {
  Stream stream;
  CHECK(stream.AgeOf(seconds(1), milliseconds(1020)) == seconds(5));
  CHECK(stream.AgeOf(seconds(2), milliseconds(2020)) == seconds(5));
  CHECK(stream.AgeOf(seconds(3), milliseconds(9020)) == seconds(11));
  // A faster one is the new measure.
  CHECK(stream.AgeOf(seconds(10), milliseconds(10005)) == seconds(5));
  CHECK(stream.AgeOf(seconds(11), milliseconds(11020)) == seconds(5) + milliseconds(15));
}

TEST_CASE("transit: the first success is dated as well, other messages have no age") {
  Transit transit;
  Event event = HeartbeatReceived{};
  transit.Correct(TimePoint(seconds(10)), seconds(1), event);
  CHECK(std::holds_alternative<HeartbeatReceived>(event));
  event = FirstWorkerSucceeded{.stamp = {}, .rank = 3, .age = seconds(1)};
  transit.Correct(TimePoint(seconds(17)), seconds(2), event);
  CHECK(std::get<FirstWorkerSucceeded>(event).age == seconds(7));
}

TEST_CASE("transit: what waited out a long stop is measured by what came before it") {
  Stream stream;
  CHECK(stream.AgeOf(seconds(1), seconds(1)) == seconds(5));
  // The coordinator is continued after ten minutes and finds all this in the socket.
  for (const int sent : {2, 3, 4, 300}) {
    CHECK(stream.AgeOf(seconds(sent), seconds(600)) == seconds(5 + 600 - sent));
  }
  CHECK(stream.AgeOf(seconds(601), seconds(601)) == seconds(5));
}

TEST_CASE("transit: clocks of different rate cost no more than they drift in two windows") {
  Stream stream;
  const Duration window = Transit::kWindow;
  for (int i = 1; i <= 10'000; ++i) {  // ours gains 1 ms a second
    const Duration late = stream.AgeOf(seconds(i), seconds(i) + milliseconds(i)) - seconds(5);
    CHECK(late >= Duration{0});
    CHECK(late <= (2 * window + seconds(2)) / 1000);
  }
  // It loses: each message is the fastest.
  Stream other;
  for (int i = 1; i <= 10'000; ++i) {
    CHECK(other.AgeOf(seconds(i), seconds(i) - milliseconds(i)) == seconds(5));
  }
}

TEST_CASE("transit: an agent that says nothing, or nonsense, is believed as far as its age goes") {
  Stream stream;
  const auto say = [&stream](Duration sent, Duration received) {
    Event event = WorkersFailed{.stamp = {}, .report = {}, .age = seconds(5)};
    stream.transit.Correct(TimePoint(received), sent, event);
    return std::get<WorkersFailed>(event).age;
  };
  CHECK(say(Duration{0}, seconds(100)) == seconds(5));
  CHECK(say(seconds(50), seconds(100)) == seconds(5));
  // Neither counts, nor changes what is known.
  CHECK(say(Duration{0}, seconds(200)) == seconds(5));
  CHECK(say(seconds(-7), seconds(200)) == seconds(5));
  CHECK(say(Duration::max(), seconds(200)) == seconds(5));
  CHECK(say(Duration::min(), seconds(200)) == seconds(5));
  CHECK(say(seconds(150), seconds(203)) == seconds(8));
  // A leap forward makes the next word a step back, which begins anew.
  CHECK(say(Duration::max() / 2, seconds(204)) == seconds(5));
  CHECK(say(seconds(155), seconds(205)) == seconds(5));
  CHECK(say(seconds(156), seconds(208)) == seconds(7));
  // The machine was asleep: there is an end to what is believed.
  CHECK(say(seconds(157), hours(24 * 365)) == seconds(5) + Transit::kMost);
}

}  // namespace
}  // namespace ddprun::rendezvous
