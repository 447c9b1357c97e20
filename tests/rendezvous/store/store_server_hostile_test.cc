// What a store's port must survive: garbage, silence, greed. The job beside it goes on.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"
#include "tests/rendezvous/store/raw_client.h"
#include "tests/support/scarce_descriptors.h"
#include "tests/support/skip.h"
#include "tests/support/store_server.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::rendezvous {
namespace {

using enum StoreOp;
using testing::ScarceDescriptors;
using testing::StartStoreServer;
using testing::VirtualClock;

// A worker of the job, connected before the trouble begins.
struct Job {
  explicit Job(const StoreServer& server) : client(RawClient::Greeted(server)) {
    client.Expect(Request(kAdd, {"/job"}, 1), Number(1));
  }
  void ExpectUnaffected() { client.Expect(Request(kGet, {"/job"}), Bytes("1")); }
  RawClient client;
};

TEST_CASE("store server: on loopback another user of this machine is closed out, and counted") {
  if (geteuid() != 0) return testing::SkipTest("only root makes sockets for other users");
  const auto server = StartStoreServer();
  Job job(*server);
  // Of this thread alone, where seteuid would change the server's, too.
  constexpr uid_t kNobody = 65534;
  syscall(SYS_setfsuid, kNobody);
  RawClient stranger(server->port());
  syscall(SYS_setfsuid, geteuid());
  stranger.Send(Greeting() + Request(kGet, {"/job"}));
  CHECK(stranger.Receive(1) == "");
  CHECK(server->stats().dropped_users == 1);
  job.ExpectUnaffected();
}

TEST_CASE("store server: garbage closes the connection at once and is counted") {
  std::string wrong_magic;
  AppendRequest({kValidate, 0xDEADBEEF, 0, {}}, &wrong_magic);
  const std::string set(1, static_cast<char>(kSet));
  struct Row {
    const char* name;
    std::string bytes;
  };
  const std::vector<Row> rows = {
      {"HTTP/1.1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00", 7)},
      {"SSH", "SSH-2.0-OpenSSH_9.2\r\n"},
      {"zeros", std::string(64, '\0')},
      {"wrong magic", wrong_magic},
      {"no greeting", Request(kGet, {"/job"})},
      {"a second greeting", Greeting() + Greeting()},
      {"unknown opcode", Greeting() + Byte(19)},
      {"key of 9,000 bytes", Greeting() + Request(kSet, {std::string(9000, 'k'), "v"})},
      {"payload above 8 MiB", Greeting() + set + Bytes("/k") + Number((8 << 20) + 1)},
      {"length of 2^63", Greeting() + set + Number(INT64_MIN)},
      {"131,073 keys", Greeting() + Byte(static_cast<char>(kWait)) + Number(131073)},
      {"add on text", Greeting() + Request(kSet, {"/t", "x"}) + Request(kAdd, {"/t"}, 1)},
  };
  const auto server = StartStoreServer();
  Job job(*server);
  uint64_t dropped = 0;
  for (const Row& row : rows) {
    CAPTURE(row.name);
    RawClient attacker(server->port());
    attacker.Send(row.bytes);
    CHECK(attacker.IsClosed());
    CHECK(server->stats().dropped_protocol == ++dropped);
    job.ExpectUnaffected();
  }
  CHECK(Eventually([&] { return server->stats().open == 1; }));
}

TEST_CASE("store server: random bytes never harm the job") {
  const auto server = StartStoreServer();
  Job job(*server);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::minstd_rand random(seed);
    std::string noise = seed % 2 == 0 ? Greeting() : "";
    for (int i = 0; i < 500; ++i) noise += static_cast<char>(random() % (seed % 3 == 0 ? 256 : 19));
    RawClient attacker(server->port());
    attacker.Send(noise);
  }
  job.ExpectUnaffected();
  CHECK(Eventually([&] { return server->stats().open == 1; }));
}

TEST_CASE("store server: requests of every kind with wrong bytes in them never harm the job") {
  const std::vector<std::string> requests = {
      Request(kSet, {"/k", "value"}),
      Request(kCompareSet, {"/k", "", "value"}),
      Request(kGet, {"/k"}),
      Request(kAdd, {"/n"}, 1),
      Request(kCheck, {"/k", "/l"}),
      Request(kWait, {"/k", "/l"}),
      Request(kGetNumKeys),
      Request(kDeleteKey, {"/k"}),
      Request(kAppend, {"/k", "value"}),
      Request(kMultiGet, {"/k", "/l"}),
      Request(kMultiSet, {"/k", "1", "/l", "2"}),
      Request(kCancelWait),
      Request(kPing),
      Request(kQueuePush, {"/q", "value"}),
      Request(kQueuePop, {"/q"}),
      Request(kQueueLen, {"/q"}),
      Request(kListKeys),
      Request(kBarrier, {"/b"}, 2),
  };
  const auto server = StartStoreServer();
  Job job(*server);
  for (uint32_t seed = 0; seed < 20 * requests.size(); ++seed) {
    std::minstd_rand random(seed);
    std::string bytes = requests[seed % requests.size()];
    for (size_t wrong = 1 + random() % 3; wrong > 0; --wrong) {
      // Now and then a byte of 0xff, which makes a length of its neighbours.
      bytes[random() % bytes.size()] =
          random() % 3 == 0 ? '\xff' : static_cast<char>(random() % 256);
    }
    if (seed % 4 == 0) bytes.resize(random() % bytes.size());
    RawClient attacker(server->port());
    attacker.Send(Greeting() + bytes + Request(kGetNumKeys));
  }
  job.ExpectUnaffected();
  CHECK(Eventually([&] { return server->stats().open == 1; }));
  CHECK(Eventually([&] { return server->stats().waiting == 0; }));
}

TEST_CASE("store server: a connection that does not greet in time is dropped, others stay") {
  StoreServer::Options options;
  options.greeting_timeout = std::chrono::hours(1);
  const auto patient = StartStoreServer(options);
  RawClient kept(patient->port());
  // The greeted one must be in time, however slow the machine is.
  options.greeting_timeout = std::chrono::seconds(5);
  const auto server = StartStoreServer(options);
  RawClient greeted = RawClient::Greeted(*server);
  greeted.Expect(Request(kGetNumKeys), Number(0));
  RawClient silent(server->port());
  RawClient half(server->port());
  half.Send(Greeting().substr(0, 3));
  CHECK(silent.IsClosed());
  CHECK(half.IsClosed());
  // `kept` has been silent for longer than these.
  CHECK(server->stats().dropped_silent == 2);
  greeted.Expect(Request(kGetNumKeys), Number(0));
  kept.Expect(Greeting() + Request(kGetNumKeys), Number(0));
}

TEST_CASE("store server: the default greeting time is five seconds") {
  CHECK(StoreServer::Options().greeting_timeout == std::chrono::seconds(5));
}

TEST_CASE("store server: who fills the store beyond its bound is dropped, the job goes on") {
  StoreServer::Options options;
  options.max_store_bytes = 1 << 20;
  const auto server = StartStoreServer(options);
  Job job(*server);
  RawClient greedy = RawClient::Greeted(*server);
  const std::string value(100 << 10, 'x');
  for (int i = 0; i < 20; ++i) {
    greedy.Send(Request(kSet, {"/" + std::to_string(i), value}));
  }
  CHECK(greedy.IsClosed());
  CHECK(server->stats().keys < 12);
  job.ExpectUnaffected();
}

TEST_CASE("store server: half-sent requests are bounded over all connections") {
  StoreServer::Options options;
  options.max_transit_bytes = 4 << 20;
  options.stalled_timeout = std::chrono::hours(1);  // The bound itself, not the later mercy.
  const auto server = StartStoreServer(options);
  Job job(*server);
  const std::string half =
      Byte(static_cast<char>(kSet)) + Bytes("/k") + Number(8 << 20) + std::string(1 << 20, 'x');
  std::vector<RawClient> hogs;
  for (int i = 0; i < 8; ++i) {
    hogs.push_back(RawClient::Greeted(*server));
    hogs.back().Send(half);
  }
  CHECK(Eventually([&] { return server->stats().dropped_protocol >= 4; }));
  job.ExpectUnaffected();
}

TEST_CASE("store server: hogs that stand still give way to the job after a while") {
  StoreServer::Options options;
  options.max_transit_bytes = 4 << 20;
  VirtualClock clock;
  const auto server = StartStoreServer(options, clock);
  Job job(*server);
  RawClient hog = RawClient::Greeted(*server);
  hog.Send(Byte(static_cast<char>(kSet)) + Bytes("/k") + Number(8 << 20) +
           std::string(3 << 20, 'x'));
  // Some of it may come only now, and begin the hog's time anew.
  CHECK(Eventually([&] {
    clock.Advance(options.stalled_timeout);
    return server->stats().dropped_protocol == 1;
  }));
  CHECK(hog.IsClosed());
  const std::string value(2 << 20, 'v');
  job.client.Expect(Request(kSet, {"/v", value}) + Request(kGet, {"/v"}), Bytes(value));
}

TEST_CASE("store server: replies beyond the bound close the connection") {
  StoreServer::Options options;
  options.max_transit_bytes = 4 << 20;
  const auto server = StartStoreServer(options);
  Job job(*server);
  RawClient greedy = RawClient::Greeted(*server);
  greedy.Send(Request(kSet, {"/v", std::string(1 << 20, 'v')}));
  greedy.Send(Request(kMultiGet, std::vector<std::string_view>(1000, "/v")));
  greedy.Receive(64 << 20);
  CHECK(greedy.IsClosed());
  CHECK(server->stats().dropped_protocol == 1);
  job.ExpectUnaffected();
}

TEST_CASE("store server: who does not read its replies is not read either, and loses none") {
  StoreServer::Options options;
  options.max_transit_bytes = 8 << 20;
  const auto server = StartStoreServer(options);
  Job job(*server);
  RawClient slow = RawClient::Greeted(*server);
  const std::string value(64 << 10, 'v');
  slow.Send(Request(kSet, {"/v", value}));
  const std::string get = Request(kGet, {"/v"});
  constexpr size_t kGets = 1000;  // 64 MiB of replies: eight times the bound.
  for (size_t i = 0; i < kGets; ++i) slow.Send(get);
  job.ExpectUnaffected();
  for (size_t i = 0; i < kGets; ++i) REQUIRE(slow.Receive(value.size() + 8) == Bytes(value));
  CHECK(server->stats().dropped_protocol == 0);
}

TEST_CASE("store server: requests without end behind a parked wait are not taken in") {
  const auto server = StartStoreServer();
  Job job(*server);
  RawClient flooder = RawClient::Greeted(*server);
  flooder.Send(Request(kWait, {"/never"}));
  REQUIRE(Eventually([&] { return server->stats().waiting == 1; }));
  const std::string flood(1 << 20, static_cast<char>(kGetNumKeys));
  size_t sent = 0;
  // What the kernel's buffers of both ends take; then nothing moves any more.
  for (size_t taken = 1; taken > 0 && sent < (size_t{64} << 20); sent += taken) {
    taken = flooder.SendSome(flood);
    for (int i = 0; taken == 0 && i < 20; ++i) {
      job.ExpectUnaffected();
      taken = flooder.SendSome(flood);
    }
  }
  CHECK(sent < (size_t{32} << 20));
  flooder.Reset();
  CHECK(Eventually([&] { return server->stats().waiting == 0; }));
  job.ExpectUnaffected();
}

TEST_CASE("store server: without descriptors it rests, and serves when there are some") {
  const auto server = StartStoreServer();
  Job job(*server);
  std::unique_ptr<RawClient> late;
  {
    const ScarceDescriptors scarce;
    const auto begin = std::chrono::steady_clock::now();
    late = std::make_unique<RawClient>(server->port());  // The last descriptor is this end's.
    CHECK(Eventually([&] { return server->stats().accept_rests >= 3; }));
    job.ExpectUnaffected();
    // Each try is followed by a whole rest, so a slow machine only makes them fewer.
    const uint64_t rests = server->stats().accept_rests;
    const auto passed = std::chrono::steady_clock::now() - begin;
    CHECK(rests <= 1 + static_cast<uint64_t>(passed / StoreServer::kAcceptRest));
    CHECK(server->stats().accepted == 1);
  }
  late->Expect(Greeting() + Request(kGetNumKeys), Number(1));
}

TEST_CASE("store server: without descriptors who has not greeted makes room") {
  const auto server = StartStoreServer();
  Job job(*server);
  RawClient silent(server->port());
  REQUIRE(Eventually([&] { return server->stats().accepted == 2; }));
  const ScarceDescriptors scarce;
  RawClient late(server->port());
  late.Expect(Greeting() + Request(kGetNumKeys), Number(1));
  CHECK(silent.IsClosed());
  CHECK(server->stats().dropped_silent == 1);
  job.ExpectUnaffected();
}

TEST_CASE("store server: the time to greet of one that has greeted ends nobody else's") {
  StoreServer::Options options;
  VirtualClock clock;
  const auto server = StartStoreServer(options, clock);
  RawClient greeted = RawClient::Greeted(*server);
  greeted.Expect(Request(kGetNumKeys), Number(0));
  clock.Advance(options.greeting_timeout - std::chrono::seconds(1));
  RawClient silent(server->port());
  REQUIRE(Eventually([&] { return server->stats().open == 2; }));
  clock.Advance(std::chrono::seconds(1));
  // By then it has looked at the time.
  CHECK(clock.AwaitWaitUntil(clock.Now() + options.greeting_timeout - std::chrono::seconds(1)));
  silent.Expect(Greeting() + Request(kGetNumKeys), Number(0));
  CHECK(server->stats().dropped_silent == 0);
}

TEST_CASE("store server: without room who has greeted and asked for nothing makes some") {
  StoreServer::Options options;
  options.max_connections = 3;
  VirtualClock clock;
  const auto server = StartStoreServer(options, clock);
  Job job(*server);
  RawClient first = RawClient::Greeted(*server), second = RawClient::Greeted(*server);
  RawClient late(server->port());
  REQUIRE(Eventually([&] { return server->stats().accept_rests > 0; }));
  CHECK(server->stats().dropped_silent == 0);
  clock.Advance(options.idle_timeout);
  late.Expect(Greeting() + Request(kGetNumKeys), Number(1));
  CHECK(first.IsClosed());
  CHECK(server->stats().dropped_silent == 1);
  second.Expect(Request(kGetNumKeys), Number(1));
  late.Expect(Request(kGetNumKeys), Number(1));
  job.ExpectUnaffected();
}

TEST_CASE("store server: where all have asked for something one more waits until one goes") {
  StoreServer::Options options;
  options.max_connections = 2;
  options.idle_timeout = std::chrono::milliseconds(0);
  const auto server = StartStoreServer(options);
  Job job(*server);
  RawClient other = RawClient::Greeted(*server);
  other.Expect(Request(kGetNumKeys), Number(1));
  std::optional<RawClient> late;
  SUBCASE("at the server's own socket") {
    late.emplace(server->port());
    late->Send(Greeting() + Request(kGetNumKeys));
    CHECK(Eventually([&] { return server->stats().accept_rests >= 3; }));
    job.ExpectUnaffected();
    other.Expect(Request(kGetNumKeys), Number(1));
    other.Reset();
    CHECK(late->Receive(Number(1).size()) == Number(1));
  }
  SUBCASE("accepted by somebody else") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd ours(ends[1]);
    server->Adopt(UniqueFd(ends[0]));
    CHECK(Eventually([&] { return server->stats().accept_rests >= 3; }));
    job.ExpectUnaffected();
    CHECK(server->stats().open == 2);
    other.Reset();
    CHECK(Eventually([&] { return server->stats().accepted == 3; }));
  }
  job.ExpectUnaffected();
}

}  // namespace
}  // namespace ddprun::rendezvous
