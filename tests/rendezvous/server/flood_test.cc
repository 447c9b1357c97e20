// Strangers that send ten megabytes of what costs a server of HTTP/2 more than it costs them,
// against the real server: its memory stays bounded, and who is there stays.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/wire/convert.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/http2_frames.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/rendezvous/server/sockets.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMegabyte = 1'000'000;
constexpr size_t kFloodBytes = 10 * kMegabyte;
constexpr size_t kMaxCostBytes = 50 * kMegabyte;
constexpr std::chrono::seconds kFloodLimit{60};

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  REQUIRE(resident > 0);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// The most until it has not grown for a while: the server may still be reading.
size_t SettledBytes(size_t most) {
  constexpr Duration kQuiet = std::chrono::milliseconds(300);
  for (TimePoint since = SteadyNow(); SteadyNow() - since < kQuiet; poll(nullptr, 0, 10)) {
    const size_t now = ResidentBytes();
    if (now > most) since = SteadyNow();
    most = std::max(most, now);
  }
  return most;
}

// What is sent over one connection: first the opening, then what `more` gives, again and again.
struct Flood {
  std::string name;
  std::string opening;
  std::function<std::string(uint32_t turn)> more;
};

// A join that would be taken, as the first message of a stream, and its end left open.
std::string JoinFrames() {
  NodeJoined joined;
  joined.node = TestNode("stranger");
  joined.policy = TestPolicy(1, 1);
  const auto message = ToProto(joined, Duration(0));
  REQUIRE(message.ok());
  const std::string body = message->SerializeAsString();
  const std::string size = {0, 0, static_cast<char>(body.size() >> 8),
                            static_cast<char>(body.size())};
  return Call(1, kAttachPath) + Frame(kDataFrame, 0, 1, std::string(1, '\0') + size + body);
}

std::string OpenAndReset(uint32_t stream, const std::string& path) {
  return Call(stream, path) + Frame(kResetFrame, 0, stream, std::string("\0\0\0\x08", 4));
}

// Sends until the other end closes, or `bytes` have gone out. Never reads. What it has sent.
size_t Send(int fd, const Flood& flood, size_t bytes, TimePoint deadline) {
  std::string pending = flood.opening;
  size_t sent = 0;
  for (uint32_t turn = 0; sent < bytes && SteadyNow() < deadline;) {
    while (pending.size() < 16 * 1024) pending += flood.more(turn++);
    const ssize_t size = send(fd, pending.data(), pending.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno != EAGAIN) return sent;
    if (size > 0) sent += static_cast<size_t>(size);
    pending.erase(0, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    pollfd writable{fd, POLLOUT, 0};
    if (size < 0) poll(&writable, 1, 100);
  }
  return sent;
}

TEST_CASE("floods: ten megabytes of frames cost the coordinator less than fifty") {
  EventLog log;
  const auto coordinator = StartListening(TestPolicy(1, 1));
  const auto client = Connect(coordinator->port(), TestPolicy(1, 1), log);
  client->Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE_MESSAGE(assigned, log.Text());

  const std::string filler = Field("x-filler", std::string(100, 'x'));
  const Flood floods[] = {
      {"opens streams and resets them", Greeting(),
       [](uint32_t turn) { return OpenAndReset(2 * turn + 1, kAttachPath); }},
      {"opens streams and leaves them", Greeting(),
       [](uint32_t turn) { return Call(2 * turn + 1, kAttachPath); }},
      {"calls what is not there", Greeting(),
       [](uint32_t turn) { return Call(2 * turn + 1, "/no/such"); }},
      {"pings", Greeting(), [](uint32_t) { return Frame(kPingFrame, 0, 0, std::string(8, 'x')); }},
      {"changes its settings", Greeting(),
       [](uint32_t) { return Frame(kSettingsFrame, 0, 0, ""); }},
      {"sends headers that do not end", Greeting() + Frame(kHeadersFrame, 0, 1, filler),
       [&](uint32_t) { return Frame(kContinuationFrame, 0, 1, filler); }},
      {"joins, then opens streams and resets them", Greeting() + JoinFrames(),
       [](uint32_t turn) { return OpenAndReset(2 * turn + 3, kAttachPath); }},
      {"joins, then pings", Greeting() + JoinFrames(),
       [](uint32_t) { return Frame(kPingFrame, 0, 0, std::string(8, 'x')); }},
      {"joins, then sends data byte by byte", Greeting() + JoinFrames(),
       [](uint32_t) { return Frame(kDataFrame, 0, 1, std::string(1, '\0')); }},
  };
  for (const Flood& flood : floods) {
    const size_t before = ResidentBytes();
    size_t most = before;
    const TimePoint deadline = SteadyNow() + kFloodLimit;
    size_t sent = 0;
    while (sent < kFloodBytes && SteadyNow() < deadline) {
      const UniqueFd fd = TryConnectTo(coordinator->port());
      REQUIRE(fd.is_open());
      sent += std::max<size_t>(1, Send(fd.get(), flood, kFloodBytes - sent, deadline));
      most = std::max(most, ResidentBytes());
    }
    CHECK_MESSAGE(sent >= kFloodBytes, "who ", flood.name, " was not heard");
    most = SettledBytes(most);
    CHECK_MESSAGE(most - before < kMaxCostBytes, "who ", flood.name, " cost ",
                  (most - before) / kMegabyte, " MB");
  }

  // Who has joined stays.
  client->ReportSucceeded(assigned->assignment.round);
  CHECK_MESSAGE(log.Await<Concluded>(), log.Text());
  CHECK(log.Text().find("contact lost") == std::string::npos);
}

}  // namespace
}  // namespace ddprun::rendezvous
