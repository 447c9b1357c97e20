// Strangers that keep a connection to the rendezvous port alive without ever joining, against the
// real server: each has five seconds from connecting, whatever it says meanwhile.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/http2_frames.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/rendezvous/server/sockets.h"

namespace ddprun::rendezvous {
namespace {

// Five are promised; the rest is for a loaded machine.
constexpr std::chrono::seconds kDropLimit{10};

// What a stranger says at its n-th turn; the turns are 100 ms apart.
using Script = std::function<std::string(int turn)>;

// One byte a turn of `bytes`, and zeros after that.
Script Drip(const std::string& bytes, size_t at_once) {
  return [bytes, at_once](int turn) {
    if (turn == 0) return bytes.substr(0, at_once);
    const size_t at = at_once + static_cast<size_t>(turn) - 1;
    return at < bytes.size() ? bytes.substr(at, 1) : std::string(1, '\0');
  };
}

// A call on a stream of its own every second.
Script CallAgainAndAgain(const std::string& path) {
  return [path](int turn) {
    if (turn == 0) return Greeting();
    return turn % 10 == 1 ? Call(static_cast<uint32_t>(turn) / 10 * 2 + 1, path) : std::string();
  };
}

bool HasEnded(int fd) {
  char bytes[4096];
  for (;;) {
    const ssize_t size = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size == 0 || errno != EAGAIN;
  }
}

TEST_CASE("strangers: who does not join in five seconds is dropped, however busy it looks") {
  EventLog log;
  const auto coordinator = StartListening(TestPolicy(1, 1));
  const uint16_t port = coordinator->port();
  const auto client = Connect(port, TestPolicy(1, 1), log);
  client->Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE_MESSAGE(assigned, log.Text());

  const std::string ping = Frame(kPingFrame, 0, 0, std::string(8, 'x'));
  const std::pair<std::string, Script> rows[] = {
      {"drips the preface", Drip(Greeting(), 1)},
      {"drips the headers of a call", Drip(Greeting() + Call(1, "/x"), Greeting().size() + 20)},
      {"only pings",
       [&](int turn) { return turn == 0        ? Greeting()
                              : turn % 15 == 0 ? ping
                                               : std::string(); }},
      {"calls what is not there", CallAgainAndAgain("/no/such")},
      {"opens the agents' stream", CallAgainAndAgain(kAttachPath)},
  };
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < std::size(rows); ++i) strangers.push_back(ConnectTo(port));
  const TimePoint begin = SteadyNow();
  size_t open = strangers.size();
  for (int turn = 0; open > 0 && SteadyNow() - begin < kDropLimit; ++turn) {
    for (size_t i = 0; i < strangers.size(); ++i) {
      if (!strangers[i].is_open()) continue;
      SendAll(strangers[i].get(), rows[i].second(turn));
      if (!HasEnded(strangers[i].get())) continue;
      strangers[i].Reset();
      --open;
    }
    poll(nullptr, 0, 100);  // the strangers' own pace
  }
  for (size_t i = 0; i < strangers.size(); ++i) {
    CHECK_MESSAGE(!strangers[i].is_open(), "still there: who ", rows[i].first);
  }

  // Who has joined stays.
  client->ReportSucceeded(assigned->assignment.round);
  CHECK_MESSAGE(log.Await<Concluded>(), log.Text());
  CHECK(log.Text().find("contact lost") == std::string::npos);
}

}  // namespace
}  // namespace ddprun::rendezvous
