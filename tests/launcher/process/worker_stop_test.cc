#include "launcher/process/worker_stop.h"

#include <csignal>

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using Order = WorkerStop::Order;
using enum WorkerStop::Receiver;

constexpr TimePoint kStart = TimePoint(100s);
constexpr Order kNothing{};

TEST_CASE("worker stop: the leader is told alone, its helpers at half of the grace, then SIGKILL") {
  WorkerStop stop;
  CHECK(stop.next_at() == TimePoint::max());
  CHECK(stop.Tell(kStart, SIGTERM, 30s) == Order{kLeader, SIGTERM});
  CHECK(stop.next_at() == kStart + 15s);
  CHECK(stop.TimePassed(kStart + 14s) == kNothing);
  CHECK(stop.TimePassed(kStart + 15s) == Order{kHelpers, SIGTERM});
  CHECK(stop.TimePassed(kStart + 16s) == kNothing);
  CHECK(stop.next_at() == kStart + 30s);
  CHECK_FALSE(stop.is_kill_due(kStart + 29s));
  CHECK(stop.TimePassed(kStart + 30s) == Order{kGroup, SIGKILL});
  CHECK(stop.is_killed());
  CHECK(stop.TimePassed(kStart + 31s) == kNothing);
  CHECK(stop.next_at() == TimePoint::max());
}

TEST_CASE("worker stop: what a leader leaves is told at its end, and has the rest of the grace") {
  WorkerStop stop;
  stop.Tell(kStart, SIGUSR1, 30s);
  CHECK(stop.LeaderEnded(kStart + 2s, 99s) == Order{kGroup, SIGTERM});
  CHECK(stop.next_at() == kStart + 30s);
  CHECK(stop.TimePassed(kStart + 15s) == kNothing);
  CHECK(stop.TimePassed(kStart + 30s) == Order{kGroup, SIGKILL});
}

TEST_CASE("worker stop: what was told at half of the grace is not told again at the leader's end") {
  WorkerStop stop;
  stop.Tell(kStart, SIGTERM, 30s);
  stop.TimePassed(kStart + 15s);
  CHECK(stop.LeaderEnded(kStart + 16s, 99s) == kNothing);
}

TEST_CASE("worker stop: where the program in a shell has the signal, its helpers are not told") {
  WorkerStop stop;
  stop.Tell(kStart, SIGTERM, 30s);
  CHECK(stop.TimePassed(kStart + 15s, true) == kNothing);
  CHECK(stop.next_at() == kStart + 30s);
  CHECK(stop.LeaderEnded(kStart + 16s, 99s) == Order{kGroup, SIGTERM});
  CHECK(stop.TimePassed(kStart + 30s) == Order{kGroup, SIGKILL});
}

TEST_CASE("worker stop: a leader that ends by itself leaves processes with a grace of their own") {
  WorkerStop stop;
  CHECK(stop.LeaderEnded(kStart, 20s) == Order{kGroup, SIGTERM});
  CHECK(stop.signal() == SIGTERM);
  CHECK(stop.next_at() == kStart + 20s);
}

TEST_CASE("worker stop: what a leader leaves that ended well is told when the patience is over") {
  WorkerStop stop;
  CHECK(stop.LeaderEnded(kStart, 20s, 5s) == kNothing);
  CHECK(stop.next_at() == kStart + 5s);
  CHECK(stop.TimePassed(kStart + 5s) == Order{kGroup, SIGTERM});
  CHECK(stop.signal() == SIGTERM);
  CHECK(stop.next_at() == kStart + 25s);
  CHECK(stop.TimePassed(kStart + 25s) == Order{kGroup, SIGKILL});
}

TEST_CASE("worker stop: a stop ends the patience") {
  WorkerStop stop;
  stop.LeaderEnded(kStart, 20s, 500s);
  CHECK(stop.Tell(kStart + 1s, SIGTERM, 30s) == Order{kGroup, SIGTERM});
  CHECK(stop.next_at() == kStart + 31s);
}

TEST_CASE("worker stop: a terminal's signals go to the whole group, once") {
  for (const int signal : {SIGINT, SIGQUIT}) {
    WorkerStop stop;
    CHECK(stop.Tell(kStart, signal, 30s) == Order{kGroup, signal});
    CHECK(stop.next_at() == kStart + 30s);
    CHECK(stop.LeaderEnded(kStart + 1s, 99s) == kNothing);
  }
}

TEST_CASE("worker stop: told again, it has the shorter grace and gets no signal twice") {
  WorkerStop stop;
  stop.Tell(kStart, SIGTERM, 30s);
  CHECK(stop.Tell(kStart + 1s, SIGTERM, 4s) == kNothing);
  CHECK(stop.next_at() == kStart + 3s);
  CHECK(stop.Tell(kStart + 2s, SIGTERM, 30s) == kNothing);
  CHECK(stop.next_at() == kStart + 3s);
  CHECK(stop.Tell(kStart + 2s, SIGHUP, 30s) == Order{kLeader, SIGHUP});
  CHECK(stop.is_kill_due(kStart + 5s));
}

TEST_CASE("worker stop: a kill is for the group, also for what a killed leader leaves") {
  WorkerStop stop;
  CHECK(stop.Kill() == Order{kGroup, SIGKILL});
  CHECK(stop.Tell(kStart, SIGTERM, 30s) == kNothing);
  CHECK(stop.LeaderEnded(kStart, 30s) == Order{kGroup, SIGKILL});
  CHECK(stop.next_at() == TimePoint::max());
}

TEST_CASE(
    "worker stop: what it has from elsewhere it is not sent, until half of the grace is over") {
  WorkerStop stop;
  CHECK(stop.Tell(kStart, SIGTERM, 30s, /*has_it=*/true) == Order{kGroup, SIGCONT});
  CHECK(stop.signal() == SIGTERM);
  SUBCASE("it ends") { CHECK(stop.LeaderEnded(kStart + 1s, 99s) == Order{kGroup, SIGTERM}); }
  SUBCASE("it does not") {
    CHECK(stop.TimePassed(kStart + 15s) == Order{kGroup, SIGTERM});
    CHECK(stop.TimePassed(kStart + 30s) == Order{kGroup, SIGKILL});
  }
}

TEST_CASE("worker stop: a pause moves both times") {
  WorkerStop stop;
  stop.Postpone(5s);
  CHECK(stop.next_at() == TimePoint::max());
  stop.Tell(kStart, SIGTERM, 30s);
  stop.Postpone(5s);
  CHECK(stop.next_at() == kStart + 20s);
  stop.TimePassed(kStart + 20s);
  CHECK(stop.next_at() == kStart + 35s);
}

}  // namespace
}  // namespace ddprun::launcher
