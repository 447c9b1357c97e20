#include "launcher/agent/round_store.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>

#include "ddp/store.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/listening_socket.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<ddp::Store> Client(uint16_t port) {
  auto client = ddp::Store::Connect("127.0.0.1", port, 20s);
  REQUIRE_MESSAGE(client.ok(), client.status().ToString());
  return *std::move(client);
}

TEST_CASE("round store: a straggler of the old round cannot write into the new one") {
  RoundStore store(RoundStore::Reach::kThisHost);
  REQUIRE(store.Renew().ok());
  const uint16_t old_port = store.port();
  const auto straggler = Client(old_port);
  REQUIRE(straggler->Set("key", "old").ok());

  REQUIRE(store.Renew().ok());
  // A set has no reply: that its connection is gone shows at the next answer.
  const bool is_sent = straggler->Set("key", "late").ok();
  const bool is_answered = straggler->Get("key", 1s).ok();
  CAPTURE(is_sent);
  CHECK_FALSE(is_answered);
  // One that connects only now knows no port but the old one's.
  // lower bound: nobody listens
  if (store.port() != old_port) CHECK_FALSE(ddp::Store::Connect("127.0.0.1", old_port, 200ms).ok());
  const auto worker = Client(store.port());
  const auto is_there = worker->Check({"key"});
  REQUIRE(is_there.ok());
  CHECK_FALSE(*is_there);
}

TEST_CASE("round store: a node that never serves one has no port and takes no connection") {
  RoundStore store(RoundStore::Reach::kNone);
  REQUIRE(store.Renew().ok());
  CHECK(store.port() == 0);
  store.Adopt(UniqueFd());
}

TEST_CASE("round store: where the workers' store is the user's wish, a port is kept for it") {
  RoundStore store(RoundStore::Reach::kWorkers);
  REQUIRE(store.Renew().ok());
  const uint16_t port = store.port();
  REQUIRE(port != 0);
  // Nobody listens, and who asks for any port does not get this one; the worker's store does.
  // lower bound: nobody listens
  CHECK_FALSE(ddp::Store::Connect("127.0.0.1", port, 200ms).ok());
  {
    rendezvous::StoreServer::Options options;
    options.bind = rendezvous::StoreServer::Bind::kNone;
    const auto workers = rendezvous::StoreServer::Start(options, SteadyClock());
    REQUIRE_MESSAGE(workers.ok(), workers.status().ToString());
    auto listener = rendezvous::ListenOn("", port);
    REQUIRE_MESSAGE(listener.ok(), listener.status().ToString());
    (*workers)->Serve(*std::move(listener));
    CHECK(Client(port)->Set("key", "value").ok());
  }
  // Not to one who does not know what the port is for.
  UniqueFd other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  CHECK(bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0);
  REQUIRE(store.Renew().ok());
  CHECK(store.port() != 0);
  store.Close();
  CHECK(store.port() == 0);
}

// Whether the kernel, which needs no time for that, lets anybody in.
bool Dials(const std::string& host, uint16_t port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

bool Answers(const std::string& host, uint16_t port) {
  return Dials(host, port) && ddp::Store::Connect(host, port, 60s).ok();
}

TEST_CASE("round store: it answers at the addresses that others are told, once they are known") {
  RoundStore store(RoundStore::Reach::kAllHosts);
  REQUIRE(store.Renew().ok());
  uint16_t port = store.port();
  REQUIRE(port != 0);
  CHECK_FALSE(Answers("127.0.0.1", port));
  // 127.0.0.2 stands for an address of the network, by which the round goes on being reached.
  for (const std::string& way : {std::string("127.0.0.2"), std::string("127.0.0.3")}) {
    REQUIRE(store.BeReachedBy({"127.0.0.1", way}).ok());
    CHECK(Answers("127.0.0.1", port));
    CHECK(Answers("127.0.0.2", port));
    CHECK(Answers("127.0.0.3", port) == (way == "127.0.0.3"));
    CHECK_FALSE(Answers("127.0.0.4", port));
  }
  // A way that this machine does not have, or has lost, changes nothing.
  REQUIRE(store.BeReachedBy({"127.0.0.1", "198.51.100.1"}).ok());
  CHECK(Answers("127.0.0.2", port));
  CHECK_FALSE(Answers("127.0.0.4", port));
  REQUIRE(store.BeReachedBy({"127.0.0.1", "127.0.0.3"}).ok());
  // The next round knows the new way alone, from the start.
  REQUIRE(store.Renew().ok());
  port = store.port();
  CHECK(Answers("127.0.0.1", port));
  CHECK(Answers("127.0.0.3", port));
  CHECK_FALSE(Answers("127.0.0.2", port));
}

TEST_CASE("round store: where nobody knows by which address others come, all of them answer") {
  RoundStore store(RoundStore::Reach::kAllHosts);
  REQUIRE(store.BeReachedBy({}).ok());
  REQUIRE(store.Renew().ok());
  CHECK(Answers("127.0.0.1", store.port()));
  CHECK(Answers("127.0.0.4", store.port()));
}

TEST_CASE("round store: only an explicit 1 leaves the store to the workers, and static never") {
  const auto reach_of = [](RendezvousKind kind, const std::string& value) {
    LaunchConfig config;
    config.rendezvous = kind;
    config.node_rank = 0;
    return RoundStore::ReachOf(config, {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=" + value}});
  };
  using enum RoundStore::Reach;
  CHECK(reach_of(RendezvousKind::kStandalone, "1") == kWorkers);
  CHECK(reach_of(RendezvousKind::kC10d, "1") == kWorkers);
  CHECK(reach_of(RendezvousKind::kStatic, "1") == kOtherPort);
  CHECK(reach_of(RendezvousKind::kStandalone, "0") == kThisHost);
  CHECK(reach_of(RendezvousKind::kC10d, "true") == kAllHosts);
}

TEST_CASE("round store: where all nodes meet on loopback nobody else reaches it") {
  const auto reach_of = [](const std::string& host, bool is_assumed = false) {
    LaunchConfig config;
    config.rendezvous = RendezvousKind::kC10d;
    config.endpoint = {host, 29400};
    config.is_endpoint_assumed = is_assumed;
    return RoundStore::ReachOf(config, {});
  };
  using enum RoundStore::Reach;
  CHECK(reach_of("127.0.0.1") == kThisHost);
  CHECK(reach_of("127.0.1.1") == kThisHost);
  CHECK(reach_of("::1") == kThisHost);
  CHECK(reach_of("localhost") == kThisHost);
  CHECK(reach_of("LOCALHOST") == kThisHost);
  CHECK(reach_of("127.1") == kThisHost);
  // Others may know this host by its name.
  CHECK(reach_of("localhost", true) == kAllHosts);
  for (const char* name : {"127.example.org", "127.cafe.de", "127.0.0.256", "::2"}) {
    CHECK_MESSAGE(reach_of(name) == kAllHosts, name);
  }
  CHECK(reach_of("10.0.0.7") == kAllHosts);
  CHECK(reach_of("gpu-01") == kAllHosts);
}

TEST_CASE(
    "round store: with etcd one node's is closed to others where all of etcd is on its host") {
  LaunchConfig config;
  config.rendezvous = RendezvousKind::kEtcd;
  config.etcd_members = {{"127.0.0.1", 2379}};
  using enum RoundStore::Reach;
  CHECK(RoundStore::ReachOf(config, {}) == kThisHost);
  config.etcd_members.push_back({"etcd2", 2379});
  CHECK(RoundStore::ReachOf(config, {}) == kAllHosts);
  config.etcd_members.pop_back();
  config.nodes.max = 2;
  CHECK(RoundStore::ReachOf(config, {}) == kAllHosts);
}

TEST_CASE("round store: alone on its node it can be reached at the address that the user gave") {
  const auto reach_of = [](const std::string& local_addr) {
    LaunchConfig config;
    config.local_addr = local_addr;
    return RoundStore::ReachOf(config, {});
  };
  using enum RoundStore::Reach;
  CHECK(reach_of("") == kThisHost);
  CHECK(reach_of("localhost") == kThisHost);
  CHECK(reach_of("127.0.0.1") == kThisHost);
  CHECK(reach_of("10.0.0.7") == kAllHosts);
  CHECK(reach_of("fd00::7") == kAllHosts);
}

}  // namespace
}  // namespace ddprun::launcher
