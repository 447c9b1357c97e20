#include "rendezvous/core/arrivals.h"

#include <doctest/doctest.h>

#include "tests/rendezvous/core/builders.h"

namespace ddprun::rendezvous::testing {
namespace {

Duration PauseOf(const ArrivalLog& log, const std::string& host, Duration now) {
  return log.PausedUntil(host, At(now)) - At(now);
}

TEST_CASE("arrivals: a host that comes for the first time counts at once") {
  ArrivalLog log;
  CHECK(PauseOf(log, "a", 5s) == 0s);
  log.NoteGone("b", At(1s), At(5s));
  CHECK(PauseOf(log, "a", 5s) == 0s);
}

TEST_CASE("arrivals: the pause of a host that comes and goes doubles up to ten minutes") {
  ArrivalLog log;
  Duration now = 0s;
  for (const Duration pause : {30s, 60s, 120s, 240s, 480s, 600s, 600s}) {
    log.NoteGone("a", At(now), At(now + 10s));
    now += 10s;
    CHECK(PauseOf(log, "a", now) == pause);
  }
}

TEST_CASE("arrivals: an hour after it went last a host is like a new one") {
  ArrivalLog log;
  log.NoteGone("a", At(0s), At(10s));
  log.NoteGone("a", At(20s), At(30s));
  CHECK(PauseOf(log, "a", 30s + 1h - 1ms) == 60s);
  CHECK(PauseOf(log, "a", 30s + 1h) == 0s);
  log.NoteGone("a", At(2h), At(2h + 1s));
  CHECK(PauseOf(log, "a", 2h + 1s) == 30s);
}

TEST_CASE("arrivals: a node that stayed for an hour does not flap") {
  ArrivalLog log;
  log.NoteGone("a", At(0s), At(1h));
  CHECK(PauseOf(log, "a", 1h) == 0s);
  log.NoteGone("a", At(0s), At(1h - 1ms));
  CHECK(PauseOf(log, "a", 1h) == 30s);
}

TEST_CASE("arrivals: agents of one host that come together and go together went once") {
  ArrivalLog log;
  for (const Duration went : {10s, 11s, 12s}) log.NoteGone("a", At(1s), At(went));
  CHECK(PauseOf(log, "a", 12s) == 30s);
}

TEST_CASE("arrivals: no more hosts are kept than there is room for") {
  ArrivalLog log;
  const int hosts = static_cast<int>(ArrivalLog::kMaxHosts);
  for (int i = 0; i <= hosts; ++i) {
    log.NoteGone("n" + std::to_string(i), At(0s), At(std::chrono::milliseconds(i)));
  }
  CHECK(PauseOf(log, "n0", 10s) == 0s);
  CHECK(PauseOf(log, "n1", 10s) == 30s);
  CHECK(PauseOf(log, "n" + std::to_string(hosts), 10s) == 30s);
}

TEST_CASE("arrivals: twelve restarts within an hour and not one more") {
  ArrivalLog log;
  for (int i = 0; i < 12; ++i) {
    CHECK(log.NextRestartAt() <= At(i * 60s));
    log.NoteRestart(At(i * 60s));
  }
  CHECK(log.NextRestartAt() == At(1h));
  log.NoteRestart(At(1h));
  CHECK(log.NextRestartAt() == At(1h + 60s));
}

}  // namespace
}  // namespace ddprun::rendezvous::testing
