#include "rendezvous/store/store_server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/listening_socket.h"
#include "tests/rendezvous/store/raw_client.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/store_server.h"

namespace ddprun::rendezvous {
namespace {

using testing::StartStoreServer;

bool HasWaiting(const StoreServer& server, uint64_t count) {
  return Eventually([&] { return server.stats().waiting == count; });
}

TEST_CASE("store server: every command is answered as PyTorch's server answers it") {
  const auto server = StartStoreServer();
  RawClient client = RawClient::Greeted(*server);
  std::string ping;
  AppendRequest({StoreOp::kPing, 0xA1B2C3D4, 0, {}}, &ping);
  struct Row {
    const char* name;
    std::string request;
    std::string reply;
  };
  using enum StoreOp;
  const std::vector<Row> rows = {
      {"ping", ping, std::string("\xD4\xC3\xB2\xA1", 4)},
      {"set, get", Request(kSet, {"/a", "1"}) + Request(kGet, {"/a"}), Bytes("1")},
      {"get of a missing key", Request(kGet, {"/none"}), Bytes("")},
      {"append", Request(kAppend, {"/a", "2"}) + Request(kGet, {"/a"}), Bytes("12")},
      {"append makes a key", Request(kAppend, {"/b", "x"}) + Request(kGet, {"/b"}), Bytes("x")},
      {"add", Request(kAdd, {"/a"}, 30), Number(42)},
      {"add makes a key", Request(kAdd, {"/n"}, -1), Number(-1)},
      {"add stores text", Request(kGet, {"/n"}), Bytes("-1")},
      {"compare-set, absent", Request(kCompareSet, {"/c", "x", "y"}), Bytes("x")},
      {"compare-set, create", Request(kCompareSet, {"/c", "", "y"}), Bytes("y")},
      {"compare-set, differs", Request(kCompareSet, {"/c", "x", "z"}), Bytes("y")},
      {"compare-set, equal", Request(kCompareSet, {"/c", "y", "z"}), Bytes("z")},
      {"check, all there", Request(kCheck, {"/a", "/b"}), Byte(kCheckReady)},
      {"check, one missing", Request(kCheck, {"/a", "/none"}), Byte(kCheckNotReady)},
      {"check of nothing", Request(kCheck), Byte(kCheckReady)},
      {"wait, all there", Request(kWait, {"/a", "/b"}), Byte(kStopWaiting)},
      {"wait for nothing", Request(kWait), Byte(kStopWaiting)},
      {"wait, cancelled", Request(kWait, {"/none"}) + Request(kCancelWait), Byte(kWaitCanceled)},
      {"cancel without a wait", Request(kCancelWait), Byte(kWaitCanceled)},
      {"number of keys", Request(kGetNumKeys), Number(4)},
      {"delete", Request(kDeleteKey, {"/b"}), Number(1)},
      {"delete again", Request(kDeleteKey, {"/b"}), Number(0)},
      {"multi-set, multi-get",
       Request(kMultiSet, {"/d", "4", "/e", "5"}) + Request(kMultiGet, {"/e", "/none", "/d"}),
       Bytes("5") + Bytes("") + Bytes("4")},
      {"multi-get of nothing", Request(kMultiGet) + ping, std::string("\xD4\xC3\xB2\xA1", 4)},
      {"pop of an empty queue", Request(kQueuePop, {"/q"}), Number(0)},
      {"queue length",
       Request(kQueuePush, {"/q", "i"}) + Request(kQueuePush, {"/q", "j"}) +
           Request(kQueueLen, {"/q"}),
       Number(2)},
      {"check of a queue", Request(kCheck, {"/q"}), Byte(kCheckReady)},
      {"pop tells the length before it", Request(kQueuePop, {"/q"}), Number(2) + Bytes("i")},
      {"delete leaves queues", Request(kDeleteKey, {"/q"}), Number(0)},
      {"list of keys", Request(kListKeys),
       Number(5) + Bytes("/a") + Bytes("/c") + Bytes("/d") + Bytes("/e") + Bytes("/n")},
      {"barrier of one", Request(kBarrier, {"/z"}, 1), Byte(kStopWaiting)},
      {"barrier, cancelled", Request(kBarrier, {"/y"}, 2) + Request(kCancelWait),
       Byte(kWaitCanceled)},
      {"a barrier's counter stays", Request(kGet, {"/y"}), Bytes("1")},
      {"an empty key", Request(kAdd, {""}, 1), Number(1)},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    client.Expect(row.request, row.reply);
  }
}

TEST_CASE("store server: pipelined requests are answered in order") {
  const auto server = StartStoreServer();
  RawClient client(server->port());
  std::string requests = Greeting();
  std::string replies;
  for (int i = 1; i <= 5000; ++i) {
    requests += Request(StoreOp::kAdd, {"/n"}, 1);
    replies += Number(i);
  }
  client.Expect(requests, replies);
}

TEST_CASE("store server: a request may arrive byte by byte") {
  const auto server = StartStoreServer();
  RawClient client(server->port());
  const std::string bytes =
      Greeting() + Request(StoreOp::kSet, {"/split", "value"}) + Request(StoreOp::kGet, {"/split"});
  for (const char byte : bytes) client.Send(std::string_view(&byte, 1));
  CHECK(client.Receive(Bytes("value").size()) == Bytes("value"));
}

TEST_CASE("store server: large values come back whole") {
  const auto server = StartStoreServer();
  RawClient client = RawClient::Greeted(*server);
  const std::string value(8 << 20, 'v');
  client.Send(Request(StoreOp::kSet, {"/large", value}));
  client.Send(Request(StoreOp::kGet, {"/large"}));
  CHECK(client.Receive(value.size() + 8) == Bytes(value));
}

TEST_CASE("store server: whatever makes a key wakes a wait on another connection") {
  using enum StoreOp;
  const std::vector<std::string> makers = {
      Request(kSet, {"/k", "v"}),
      Request(kAdd, {"/k"}, 0),
      Request(kAppend, {"/k", "v"}),
      Request(kCompareSet, {"/k", "", "v"}),
      Request(kMultiSet, {"/j", "v", "/k", "v"}),
      Request(kQueuePush, {"/k", "v"}),
  };
  for (const std::string& maker : makers) {
    CAPTURE(static_cast<int>(maker[0]));
    const auto server = StartStoreServer();
    RawClient waiter = RawClient::Greeted(*server);
    RawClient other = RawClient::Greeted(*server);
    waiter.Send(Request(kWait, {"/k"}));
    REQUIRE(HasWaiting(*server, 1));
    other.Send(maker);
    CHECK(waiter.Receive(1) == Byte(kStopWaiting));
    // Nothing else was sent to the waiter in between.
    waiter.Expect(Request(kGetNumKeys), Number(maker[0] == static_cast<char>(kMultiSet)    ? 2
                                               : maker[0] == static_cast<char>(kQueuePush) ? 0
                                                                                           : 1));
  }
}

TEST_CASE("store server: a barrier of three opens when the third arrives") {
  const auto server = StartStoreServer();
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(RawClient::Greeted(*server));
  for (uint64_t i = 0; i < 2; ++i) {
    clients[i].Send(Request(StoreOp::kBarrier, {"/b"}, 3));
    REQUIRE(HasWaiting(*server, i + 1));
  }
  clients[2].Send(Request(StoreOp::kBarrier, {"/b"}, 3));
  for (RawClient& client : clients) CHECK(client.Receive(1) == Byte(kStopWaiting));
}

TEST_CASE("store server: requests behind a parked wait are answered after it") {
  const auto server = StartStoreServer();
  RawClient waiter = RawClient::Greeted(*server);
  RawClient other = RawClient::Greeted(*server);
  waiter.Send(Request(StoreOp::kWait, {"/k"}) + Request(StoreOp::kGet, {"/k"}));
  REQUIRE(HasWaiting(*server, 1));
  other.Send(Request(StoreOp::kSet, {"/k", "v"}));
  CHECK(waiter.Receive(1 + 9) == Byte(kStopWaiting) + Bytes("v"));
}

TEST_CASE("store server: a connection that goes away takes its waits along") {
  for (const bool is_reset : {false, true}) {
    const auto server = StartStoreServer();
    RawClient leaver = RawClient::Greeted(*server);
    RawClient stayer = RawClient::Greeted(*server);
    leaver.Send(Request(StoreOp::kWait, {"/k", "/l"}));
    stayer.Send(Request(StoreOp::kWait, {"/k"}));
    REQUIRE(HasWaiting(*server, 2));
    if (is_reset) {
      leaver.Reset();
    } else {
      leaver.Release();
    }
    CHECK(HasWaiting(*server, 1));
    RawClient::Greeted(*server).Send(Request(StoreOp::kSet, {"/k", "v"}));
    CHECK(stayer.Receive(1) == Byte(kStopWaiting));
  }
}

TEST_CASE("store server: clients on several threads count every add once") {
  const auto server = StartStoreServer();
  constexpr int kClients = 8;
  constexpr int kAdds = 500;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&server] {
      RawClient client = RawClient::Greeted(*server);
      for (int n = 0; n < kAdds; ++n) {
        client.Send(Request(StoreOp::kAdd, {"/n"}, 1));
        client.Receive(8);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  RawClient::Greeted(*server).Expect(Request(StoreOp::kAdd, {"/n"}, 0), Number(kClients * kAdds));
}

TEST_CASE("store server: a thousand connections wait for one key and are all woken") {
  constexpr uint64_t kCount = 1000;
  if (!AllowOpenFiles(2 * kCount + 100)) {
    return testing::SkipTest("the limit on open files is below 2,100");
  }
  const auto server = StartStoreServer();
  std::vector<RawClient> clients;
  for (uint64_t i = 0; i < kCount; ++i) {
    clients.push_back(RawClient::Greeted(*server));
    clients.back().Send(Request(StoreOp::kWait, {"/go"}));
  }
  REQUIRE_MESSAGE(HasWaiting(*server, kCount), server->stats().waiting);
  RawClient::Greeted(*server).Send(Request(StoreOp::kSet, {"/go", "1"}));
  uint64_t woken = 0;
  for (RawClient& client : clients) woken += client.Receive(1) == Byte(kStopWaiting) ? 1 : 0;
  CHECK(woken == kCount);
}

TEST_CASE("store server: a straggler of the old round cannot write into the new one") {
  auto old_round = StartStoreServer();
  const uint16_t old_port = old_round->port();
  RawClient straggler = RawClient::Greeted(*old_round);
  straggler.Expect(Request(StoreOp::kAdd, {"/rank"}, 1), Number(1));
  const auto new_round = StartStoreServer();
  CHECK(new_round->port() != old_port);
  old_round->Close();
  straggler.Send(Request(StoreOp::kSet, {"/rank", "stale"}));
  CHECK(straggler.IsClosed());
  auto late = StoreServer::Start({.port = old_port}, SteadyClock());
  if (late.ok()) {
    // Where the port is fixed: the old connection is closed, the key space is a new one.
    CHECK((*late)->stats().keys == 0);
    CHECK((*late)->stats().accepted == 0);
  }
  RawClient::Greeted(*new_round).Expect(Request(StoreOp::kCheck, {"/rank"}), Byte(kCheckNotReady));
  CHECK(new_round->stats().keys == 0);
}

TEST_CASE("store server: closing it closes connections that wait") {
  auto server = StartStoreServer();
  std::vector<RawClient> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(RawClient::Greeted(*server));
    clients.back().Send(Request(StoreOp::kWait, {"/never"}));
  }
  REQUIRE(HasWaiting(*server, 6));
  server->Close();
  server->Close();
  for (RawClient& client : clients) CHECK(client.IsClosed());
}

TEST_CASE("store server: serves a connection that somebody else accepted") {
  StoreServer::Options options;
  options.bind = StoreServer::Bind::kNone;
  auto server = StartStoreServer(options);
  CHECK(server->port() == 0);
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  address.ss_family = AF_INET;
  socklen_t size = sizeof(sockaddr_storage);
  REQUIRE(listen(listener.get(), 4) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  const std::string request = Greeting() + Request(StoreOp::kAdd, {"/n"}, 3);
  REQUIRE(send(client.get(), request.data(), request.size(), 0) > 0);
  server->Adopt(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  char reply[8];
  CHECK(recv(client.get(), reply, sizeof(reply), MSG_WAITALL) == 8);
  CHECK(std::string_view(reply, 8) == Number(3));
  server->Close();
  CHECK(recv(client.get(), reply, 1, 0) == 0);
}

TEST_CASE("store server: a port in use is an error that names it") {
  const auto first = StartStoreServer();
  const auto second = StoreServer::Start({.port = first->port()}, SteadyClock());
  REQUIRE_FALSE(second.ok());
  CHECK(absl::IsAlreadyExists(second.status()));
  CHECK(second.status().message() == Contains("port " + std::to_string(first->port())));
}

TEST_CASE("store server: it serves sockets of all addresses and of one, by IPv4 and by IPv6") {
  StoreServer::Options options;
  options.bind = StoreServer::Bind::kNone;
  const auto server = StartStoreServer(options);
  auto all = ListenOn("", 0);
  auto one = ListenOn("127.0.0.1", 0);
  REQUIRE(all.ok());
  REQUIRE(one.ok());
  const uint16_t port = LocalPort(all->get());
  const uint16_t port_of_one = LocalPort(one->get());
  server->Serve(*std::move(all));
  RawClient v4(port);
  v4.Expect(Greeting() + Request(StoreOp::kAdd, {"/n"}, 1), Number(1));
  UniqueFd probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  server->Serve(*std::move(one));
  RawClient of_one(port_of_one);
  of_one.Expect(Greeting() + Request(StoreOp::kAdd, {"/n"}, 1), Number(2));
  if (!probe.is_open()) return testing::SkipTest("no IPv6 here; IPv4 was checked");
  RawClient v6(port, true);
  v6.Expect(Greeting() + Request(StoreOp::kAdd, {"/n"}, 1), Number(3));
}

TEST_CASE("store server: bound to loopback it listens on 127.0.0.1 alone") {
  const auto server = StartStoreServer();
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);  // 127.0.0.2: ours, and not bound.
  CHECK(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0);
  CHECK(errno == ECONNREFUSED);
}

}  // namespace
}  // namespace ddprun::rendezvous
