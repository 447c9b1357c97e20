#include "rendezvous/server/port_listener.h"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/connection_table.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/wire/hello.h"
#include "tests/rendezvous/server/http2_frames.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/loopback.h"
#include "tests/support/scarce_descriptors.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::rendezvous {
namespace {

using testing::VirtualClock;

struct Served {
  explicit Served(Duration silence_limit, const Clock& clock = SteadyClock()) {
    auto listening = ListenOnEach({}, 0);
    REQUIRE(listening.ok());
    port = LocalPort(listening->sockets[0].get());
    PortListener::Handlers handlers{.connections = &table};
    handlers.on_store = [](UniqueFd fd) { SendAll(fd.get(), "store"); };
    handlers.on_http2 = [](UniqueFd fd) { SendAll(fd.get(), "http2"); };
    handlers.hello_reply = [] { return MakeHelloReply({"run-1", false}); };
    handlers.on_no_descriptor = [this] { ++rests; };
    handlers.on_refused = [this](const std::string& text) { refusals.push_back(text); };
    handlers.silence_limit = silence_limit;
    auto started = PortListener::Start(std::move(listening->sockets), std::move(handlers), clock);
    REQUIRE(started.ok());
    listener = *std::move(started);
  }
  std::string Ask(const std::string& bytes) const {
    const UniqueFd fd = ConnectTo(port);
    SendAll(fd.get(), bytes);
    return ReadToEnd(fd.get());
  }
  uint16_t port = 0;
  ConnectionTable table;
  std::atomic<uint64_t> rests{0};     // of accept
  std::vector<std::string> refusals;  // the listener's thread's, and complete once it has ended
  std::unique_ptr<PortListener> listener;
};

TEST_CASE("port listener: the first byte decides who serves a connection") {
  const Served served(std::chrono::seconds(30));
  CHECK(served.Ask(std::string("\0", 1)) == "store");
  CHECK(served.Ask("P") == "http2");
  CHECK(served.Ask(kHelloRequest) == MakeHelloReply({"run-1", false}));
  CHECK(served.Ask("\x16") == "");
  CHECK(served.Ask("GET / HTTP/1.1\r\n\r\n") == "");
  CHECK(served.Ask("SSH-2.0-x\r\n") == "");
}

TEST_CASE("port listener: a silent connection is closed when its time is over, not before") {
  constexpr Duration kLimit = std::chrono::seconds(5);
  VirtualClock clock;
  const Served served(kLimit, clock);
  const UniqueFd silent = ConnectTo(served.port);
  const TimePoint end = clock.Now() + kLimit;
  // Whoever has an answer was accepted behind it.
  CHECK(served.Ask("P") == "http2");
  CHECK(clock.AwaitWaitUntil(end));
  clock.Advance(kLimit - Duration(1));
  CHECK(served.Ask("P") == "http2");
  CHECK(served.Ask("P") == "http2");
  pollfd readable{silent.get(), POLLIN, 0};
  CHECK(poll(&readable, 1, 0) == 0);
  clock.Advance(Duration(1));
  CHECK(ReadToEnd(silent.get()) == "");
}

TEST_CASE("port listener: by the machine's own clock a silent connection ends, too") {
  const Served served(std::chrono::milliseconds(50));  // lower bound: of the wait
  const TimePoint begin = SteadyNow();
  const UniqueFd silent = ConnectTo(served.port);
  CHECK(ReadToEnd(silent.get()) == "");
  CHECK(SteadyNow() - begin >= std::chrono::milliseconds(50));
}

TEST_CASE("port listener: a silent connection has five seconds unless somebody says otherwise") {
  CHECK(PortListener::kSilenceLimit <= std::chrono::seconds(5));
  ConnectionTable table;
  const PortListener::Handlers handlers{.connections = &table};
  CHECK(handlers.silence_limit == PortListener::kSilenceLimit);
}

void SetBuffer(const UniqueFd& fd, int option, int bytes) {
  REQUIRE(setsockopt(fd.get(), SOL_SOCKET, option, &bytes, sizeof bytes) == 0);
}

// Connections handed over stay open until the test ends, as gRPC keeps those that say something.
struct Kept {
  explicit Kept(Duration silence_limit, const Clock& clock = SteadyClock()) {
    auto listening = ListenOnEach({}, 0);
    REQUIRE(listening.ok());
    // What is accepted has little room for what is sent, and so a test can fill it.
    for (const UniqueFd& socket : listening->sockets) SetBuffer(socket, SO_SNDBUF, 4096);
    port = LocalPort(listening->sockets[0].get());
    PortListener::Handlers handlers{.connections = &table};
    handlers.on_http2 = [this](UniqueFd fd) {
      const std::lock_guard lock(mutex);
      connections.push_back(std::move(fd));
    };
    handlers.hello_reply = [] { return MakeHelloReply({"run-1", false}); };
    handlers.silence_limit = silence_limit;
    auto started = PortListener::Start(std::move(listening->sockets), std::move(handlers), clock);
    REQUIRE(started.ok());
    listener = *std::move(started);
  }
  size_t Count() {
    const std::lock_guard lock(mutex);
    return connections.size();
  }
  // As gRPC tells it.
  std::string PeerOf(size_t i) {
    const std::lock_guard lock(mutex);
    sockaddr_un name{};
    socklen_t size = sizeof(name);
    REQUIRE(getpeername(connections[i].get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
    return "unix-abstract:" +
           std::string(name.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  }
  uint16_t port = 0;
  ConnectionTable table;
  std::mutex mutex;
  std::vector<UniqueFd> connections;
  std::unique_ptr<PortListener> listener;
};

TEST_CASE("port listener: gRPC's connection is closed in time unless an agent has joined") {
  constexpr Duration kLimit = std::chrono::seconds(5);
  VirtualClock clock;
  Kept kept(kLimit, clock);
  const UniqueFd joined = ConnectTo(kept.port);
  SendAll(joined.get(), "PRI");
  while (kept.Count() < 1) std::this_thread::yield();
  const auto connection = kept.table.Find(kept.PeerOf(0));
  REQUIRE(connection);
  CHECK(AddressText(connection->peer) == AddressText(LocalAddress(joined.get())));
  CHECK(AddressText(connection->local) == AddressText(PeerAddress(joined.get())));
  connection->has_joined = true;
  const UniqueFd stranger = ConnectTo(kept.port);
  SendAll(stranger.get(), "P");
  while (kept.Count() < 2) std::this_thread::yield();
  clock.Advance(kLimit);
  CHECK(ReadToEnd(stranger.get()) == "");
  const std::lock_guard lock(kept.mutex);
  char heard[16];
  REQUIRE(recv(kept.connections[0].get(), heard, sizeof heard, 0) == 3);
  CHECK(std::string(heard, 3) == "PRI");
  SendAll(kept.connections[0].get(), "here");
  kept.connections[0].Reset();
  CHECK(ReadToEnd(joined.get()) == "here");
}

// An agent that ends with something unread resets the connection behind its last words.
TEST_CASE("port listener: what came before a reset still reaches gRPC") {
  Kept kept(std::chrono::hours(1));
  UniqueFd leaves = ConnectTo(kept.port);
  SendAll(leaves.get(), "P");
  while (kept.Count() < 1) std::this_thread::yield();
  {
    // The listener waits for the lock with the next connection, and sees words and reset at once.
    const std::lock_guard lock(kept.mutex);
    const UniqueFd next = ConnectTo(kept.port);
    SendAll(next.get(), "P");
    const linger reset{1, 0};
    REQUIRE(setsockopt(leaves.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    poll(nullptr, 0, 100);
    SendAll(leaves.get(), "last words");
    leaves.Reset();
  }
  while (kept.Count() < 2) std::this_thread::yield();
  const std::lock_guard lock(kept.mutex);
  const int end = kept.connections[0].get();
  REQUIRE(fcntl(end, F_SETFL, 0) == 0);
  CHECK(ReadToEnd(end) == "Plast words");
}

// gRPC ends a call that its peer does not read: the rest is kept for a while, and costs nothing.
TEST_CASE("port listener: who does not read what gRPC has said last is dropped in time") {
  constexpr Duration kLimit = std::chrono::seconds(5);
  VirtualClock clock;
  Kept kept(kLimit, clock);
  const UniqueFd deaf(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SetBuffer(deaf, SO_RCVBUF, 4096);
  const sockaddr_in address = testing::Loopback(kept.port);
  REQUIRE(connect(deaf.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  SendAll(deaf.get(), "P");
  while (kept.Count() < 1) std::this_thread::yield();
  const std::string name = kept.PeerOf(0);
  kept.table.Find(name)->has_joined = true;
  clock.Advance(kLimit);  // from now on its time is not that of its coming
  const TimePoint end = clock.Now() + kLimit;
  {
    const std::lock_guard lock(kept.mutex);
    UniqueFd& ours = kept.connections[0];
    REQUIRE(fcntl(ours.get(), F_SETFL, 0) == 0);
    // More than TCP takes with buffers that small, and less than this socket does with its own.
    SetBuffer(ours, SO_SNDBUF, 1 << 20);
    SendAll(ours.get(), std::string(192 * 1024, 'x'));
    ours.Reset();
  }
  CHECK(clock.AwaitWaitUntil(end));
  // A loop that spins takes all of the time.
  const std::clock_t cpu_before = std::clock();
  const TimePoint begin = SteadyNow();
  // lower bound: of the looking
  while (SteadyNow() - begin < std::chrono::milliseconds(300)) poll(nullptr, 0, 10);
  const Duration cpu = std::chrono::microseconds(std::clock() - cpu_before);
  CHECK(cpu < (SteadyNow() - begin) / 2);
  CHECK(kept.table.Find(name) != nullptr);
  clock.Advance(kLimit);
  while (kept.table.Find(name) != nullptr) std::this_thread::yield();
}

// Two connections, the older of which is the later to speak: it has to be the first to go.
TEST_CASE("port listener: a connection's time counts from its coming, not from its first byte") {
  constexpr Duration kLimit = std::chrono::seconds(5);
  VirtualClock clock;
  Kept kept(kLimit, clock);
  const TimePoint end = clock.Now() + kLimit;
  const UniqueFd older = ConnectTo(kept.port);
  CHECK(clock.AwaitWaitUntil(end));
  clock.Advance(kLimit / 2);
  const UniqueFd younger = ConnectTo(kept.port);
  SendAll(younger.get(), "P");
  while (kept.Count() < 1) std::this_thread::yield();
  SendAll(older.get(), "P");
  while (kept.Count() < 2) std::this_thread::yield();
  clock.Advance(kLimit / 2);
  CHECK(ReadToEnd(older.get()) == "");
  pollfd readable{younger.get(), POLLIN, 0};
  CHECK(poll(&readable, 1, 0) == 0);
}

// From another address of this machine.
UniqueFd ConnectFrom(uint32_t host, uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = testing::Loopback(0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host);
  REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  address = testing::Loopback(port);
  REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

TEST_CASE(
    "port listener: who asks for TLS where there is none is told of, and strangers end that") {
  Served served(std::chrono::seconds(30));
  for (const uint32_t host : {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
    const UniqueFd fd = ConnectFrom(host, served.port);
    SendAll(fd.get(), "\x16");
    CHECK(ReadToEnd(fd.get()) == "");
  }
  CHECK(served.Ask("SSH-2.0-x\r\n") == "");
  served.listener->CloseDoor();
  served.listener.reset();
  REQUIRE(served.refusals.size() == PortListener::kMaxToldRefusals);
  const std::string why = " was refused: it asks for TLS, and this job has no token";
  CHECK(served.refusals.front() == "a connection from 127.0.0.2" + why);
  CHECK(served.refusals.back() ==
        "a connection from 127.0.0.9" + why + "; more of this is not told");
}

TEST_CASE("port listener: without descriptors it rests, and serves when there are some") {
  const Served served(std::chrono::hours(1));
  UniqueFd late;
  {
    const testing::ScarceDescriptors scarce;
    const TimePoint begin = SteadyNow();
    late = ConnectTo(served.port);  // the last descriptor is this end's
    SendAll(late.get(), "P");
    // Each try is followed by a whole rest, so a slow machine only makes them fewer.
    uint64_t rests = 0;
    while (rests < 3) {
      rests = served.rests;
      const Duration passed = SteadyNow() - begin;
      REQUIRE(rests <= 1 + static_cast<uint64_t>(passed / PortListener::kAcceptRest));
      REQUIRE(passed < std::chrono::seconds(60));
      std::this_thread::yield();
    }
  }
  CHECK(ReadToEnd(late.get()) == "http2");
}

// A connection that has begun a call.
UniqueFd Caller(uint16_t port) {
  UniqueFd fd = ConnectTo(port);
  SendAll(fd.get(), Greeting() + Call(1, kAttachPath));
  return fd;
}

TEST_CASE("port listener: whoever speaks gets in beside thousands who begin no call") {
  for (const std::string& says : {std::string(), std::string("P"), Greeting()}) {
    Kept kept(std::chrono::hours(1));
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 2000; ++i) {
      silent.push_back(ConnectTo(kept.port));
      SendAll(silent.back().get(), says);
    }
    const UniqueFd hello = ConnectTo(kept.port);
    SendAll(hello.get(), kHelloRequest);
    CHECK(ReadToEnd(hello.get()) == MakeHelloReply({"run-1", false}));
    const UniqueFd caller = Caller(kept.port);
    // The oldest have left, the youngest are there still, and so is the caller.
    for (size_t i = 0; i < 2000 - PortListener::kMaxStrangers; ++i) {
      CHECK(ReadToEnd(silent[i].get()) == "");
    }
    pollfd ends[] = {{silent.back().get(), POLLIN, 0}, {caller.get(), POLLIN, 0}};
    CHECK(poll(ends, 2, 200) == 0);
  }
}

// Since then, until the first of `silent` is dropped.
Duration TimeToFirstDrop(const std::vector<UniqueFd>& silent, TimePoint since) {
  pollfd first{silent.front().get(), POLLIN, 0};
  REQUIRE(poll(&first, 1, 60'000) == 1);
  return SteadyNow() - since;
}

TEST_CASE("port listener: who says nothing keeps a place for a moment, and while agents join") {
  Kept kept(std::chrono::hours(1));
  const UniqueFd joining = Caller(kept.port);
  while (kept.Count() < 1) std::this_thread::yield();
  std::vector<UniqueFd> silent;
  const auto fill = [&] {
    while (silent.size() < PortListener::kMaxStrangers + 1) silent.push_back(ConnectTo(kept.port));
  };
  TimePoint begin = SteadyNow();
  SUBCASE("a moment") {
    fill();
    CHECK(TimeToFirstDrop(silent, begin) >= PortListener::kFirstBytePatience);
  }
  SUBCASE("behind a join") {
    kept.table.Find(kept.PeerOf(0))->has_joined = true;
    fill();
    CHECK(TimeToFirstDrop(silent, begin) >= PortListener::kJoinPatience);
  }
}

TEST_CASE("port listener: of those who say nothing the oldest of the busiest address goes first") {
  const Kept kept(std::chrono::hours(1));
  std::vector<UniqueFd> others, busy;
  // The others are older, of two addresses with fewer each.
  for (uint32_t i = 0; i < 56; ++i) others.push_back(ConnectFrom(2 + i % 2, kept.port));
  const auto fill = [&](size_t most) {
    while (others.size() + busy.size() < most) busy.push_back(ConnectFrom(1, kept.port));
  };
  fill(PortListener::kMaxStrangers - 1);
  // All are in once one behind them has its answer. Only those who have had their moment count.
  const UniqueFd hello = ConnectTo(kept.port);
  SendAll(hello.get(), kHelloRequest);
  CHECK(ReadToEnd(hello.get()) == MakeHelloReply({"run-1", false}));
  const TimePoint all_may_go = SteadyNow() + PortListener::kFirstBytePatience;
  while (SteadyNow() < all_may_go) std::this_thread::yield();
  fill(PortListener::kMaxStrangers + 2);
  CHECK(ReadToEnd(busy[0].get()) == "");
  CHECK(ReadToEnd(busy[1].get()) == "");
  std::vector<pollfd> rest = {{busy.back().get(), POLLIN, 0}};
  for (const UniqueFd& fd : others) rest.push_back({fd.get(), POLLIN, 0});
  CHECK(poll(rest.data(), rest.size(), 200) == 0);
}

TEST_CASE("port listener: where all have begun a call those who join make room at once") {
  Kept kept(std::chrono::hours(1));
  std::vector<UniqueFd> strangers;
  // One is accepted beyond the number, and nobody behind it while none may go.
  for (size_t i = 0; i < PortListener::kMaxStrangers + 2; ++i) {
    strangers.push_back(Caller(kept.port));
  }
  while (kept.Count() <= PortListener::kMaxStrangers) std::this_thread::yield();
  pollfd ends[] = {{strangers.front().get(), POLLIN, 0}, {strangers.back().get(), POLLIN, 0}};
  CHECK(poll(ends, 2, 200) == 0);
  CHECK(kept.Count() == PortListener::kMaxStrangers + 1);
  for (size_t i = 0; i < 2; ++i) kept.table.Find(kept.PeerOf(i))->has_joined = true;
  SendAll(strangers.front().get(), Frame(kPingFrame, 0, 0, std::string(8, 'x')));
  const TimePoint begin = SteadyNow();
  while (kept.Count() < PortListener::kMaxStrangers + 2) {
    REQUIRE(SteadyNow() - begin < std::chrono::seconds(60));  // an old one has 12 minutes
    std::this_thread::yield();
  }
}

TEST_CASE("port listener: where all have begun a call the old ones make room, before their time") {
  constexpr Duration kPatience = std::chrono::seconds(6);
  VirtualClock clock;
  Kept kept(5 * kPatience, clock);
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < PortListener::kMaxStrangers + 2; ++i) {
    strangers.push_back(Caller(kept.port));
  }
  CHECK(clock.AwaitWaitUntil(clock.Now() + kPatience));
  CHECK(kept.Count() == PortListener::kMaxStrangers + 1);
  clock.Advance(kPatience);
  CHECK(ReadToEnd(strangers.front().get()) == "");
  while (kept.Count() < PortListener::kMaxStrangers + 2) std::this_thread::yield();
}

TEST_CASE("port listener: a port that is taken is named") {
  const Served served(std::chrono::seconds(30));
  const auto second = ListenOn("", served.port);
  CHECK(absl::IsAlreadyExists(second.status()));
  const std::string port = std::to_string(served.port);
  CHECK(second.status().message() == Contains("port " + port));
  CHECK(ListenOn("not-an-ip", 0).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ddprun::rendezvous
