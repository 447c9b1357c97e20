// Strangers that keep a connection to the rendezvous port alive without ever joining, against the
// real server: each has five seconds from connecting, whatever it says meanwhile, also where the
// job has a token.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/tls/stream.h"
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

struct Stranger {
  std::string name;
  Script says;
};

// All at once; each must be dropped in time, and not before `earliest`.
void CheckDropped(uint16_t port, const std::vector<Stranger>& rows, Duration earliest = {}) {
  std::vector<UniqueFd> fds;
  const TimePoint begin = SteadyNow();
  for (size_t i = 0; i < rows.size(); ++i) fds.push_back(ConnectTo(port));
  size_t open = fds.size();
  for (int turn = 0; open > 0 && SteadyNow() - begin < kDropLimit; ++turn) {
    for (size_t i = 0; i < fds.size(); ++i) {
      if (!fds[i].is_open()) continue;
      SendAll(fds[i].get(), rows[i].says(turn));
      if (!HasEnded(fds[i].get())) continue;
      CHECK_MESSAGE(SteadyNow() - begin >= earliest, "dropped early: who ", rows[i].name);
      fds[i].Reset();
      --open;
    }
    poll(nullptr, 0, 100);  // the strangers' own pace
  }
  for (size_t i = 0; i < fds.size(); ++i) {
    CHECK_MESSAGE(!fds[i].is_open(), "still there: who ", rows[i].name);
  }
}

TEST_CASE("strangers: who does not join in five seconds is dropped, however busy it looks") {
  const auto coordinator = StartListening(TestPolicy(1, 1));
  LoneMember member(*coordinator);
  const std::string ping = Frame(kPingFrame, 0, 0, std::string(8, 'x'));
  CheckDropped(
      coordinator->port(),
      {{"drips the preface", Drip(Greeting(), 1)},
       {"drips the headers of a call", Drip(Greeting() + Call(1, "/x"), Greeting().size() + 20)},
       {"only pings",
        [&](int turn) { return turn == 0        ? Greeting()
                               : turn % 15 == 0 ? ping
                                                : std::string(); }},
       {"calls what is not there", CallAgainAndAgain("/no/such")},
       {"opens the agents' stream", CallAgainAndAgain(kAttachPath)}});
  member.CheckUndisturbed();
}

// What a client with that identity says first.
std::string FirstWords(const Identity& identity) {
  return TlsStream(identity, TlsStream::Role::kClient).TakeOutgoing();
}

TEST_CASE("strangers: who does not end its TLS greeting in five seconds is dropped") {
  const Identity ours = IdentityOf("the job's token");
  const auto coordinator = StartListening(TestPolicy(1, 1), 0, ours);
  LoneMember member(*coordinator, ours);
  const std::string others = FirstWords(IdentityOf("another token"));
  // As one says them that has heard them on the wire.
  const std::string replayed = FirstWords(ours);
  REQUIRE(others.size() > 200);  // at ten bytes a second it lasts
  const std::string record("\x17\x03\x03\x00\x35", 5);
  CheckDropped(coordinator->port(),
               {{"says nothing", [](int) { return std::string(); }},
                {"begins a greeting, and says no more",
                 [](int turn) { return std::string(turn == 0 ? "\x16" : ""); }},
                {"drips a greeting", Drip(others, 1)},
                {"drips the second half of one", Drip(others, others.size() / 2)},
                {"drips one with the job's token", Drip(replayed, 1)},
                {"says one with the job's token, and no more",
                 [&](int turn) { return turn == 0 ? replayed : std::string(); }},
                {"goes on to drip what would prove it", Drip(replayed + record, replayed.size())}},
               std::chrono::seconds(4));
  member.CheckUndisturbed();
}

}  // namespace
}  // namespace ddprun::rendezvous
