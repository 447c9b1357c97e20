#include "rendezvous/net/connection_table.h"

#include <doctest/doctest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/listening_socket.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

SocketAddress Ip(const std::string& ip, uint16_t port = 29400) {
  const auto address = ParseIp(ip, port);
  REQUIRE_MESSAGE(address, ip);
  return *address;
}

TEST_CASE("address: what gRPC calls a peer is the address that the kernel gave") {
  const std::string lo = std::to_string(if_nametoindex("lo"));
  CHECK(FromGrpcTarget("ipv4:10.0.0.2:29400") == Ip("10.0.0.2"));
  CHECK(FromGrpcTarget("ipv6:%5B::1%5D:29400") == Ip("::1"));
  CHECK(FromGrpcTarget("ipv6:%5B::ffff:10.0.0.2%5D:29400") == Ip("10.0.0.2"));
  // gRPC numbers the interface, we name it.
  CHECK(FromGrpcTarget("ipv6:%5Bfe80::1%25" + lo + "%5D:29400") == Ip("fe80::1%lo"));
  CHECK(IpText(FromGrpcTarget("ipv6:%5Bfe80::1%25" + lo + "%5D:29400")) == "fe80::1%lo");
  CHECK(FromGrpcTarget("unix:/tmp/x").size == 0);
  CHECK(FromGrpcTarget("ipv6:nonsense").size == 0);
  CHECK_FALSE(ParseIp("fe80::1%no-such-interface", 1));
}

TEST_CASE("address: scope, port and IP tell addresses apart, the family of an IPv4 one does not") {
  CHECK(Ip("::ffff:10.0.0.2") == Ip("10.0.0.2"));
  CHECK(Ip("10.0.0.2") != Ip("10.0.0.3"));
  CHECK(Ip("10.0.0.2", 1) != Ip("10.0.0.2", 2));
  CHECK(Ip("fe80::1%lo") != Ip("fe80::1%4711"));
  CHECK(SocketAddress{} != Ip("0.0.0.0", 0));
}

// A connection on loopback, accepted.
struct Pair {
  explicit Pair(const std::string& host) {
    auto listening = ListenOn(host, 0);
    REQUIRE_MESSAGE(listening.ok(), listening.status().ToString());
    const SocketAddress to = LocalAddress(listening->get());
    client.Reset(socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(client.get(), to.get(), to.size) == 0);
    server.Reset(accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(server.is_open());
  }
  bool HasEnded() const {
    char byte = 0;
    return recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  UniqueFd client;
  UniqueFd server;
};

TEST_CASE("connections: who has joined stays, who has not is shut down in time") {
  Pair joins("127.0.0.1");
  Pair stays("127.0.0.1");
  ConnectionTable table;
  const TimePoint now = SteadyNow();
  REQUIRE(table.Add(joins.server.get(), now + seconds(5)));
  REQUIRE(table.Add(stays.server.get(), now + seconds(5)));
  CHECK(table.Joined(LocalAddress(joins.client.get())) == PeerAddress(joins.client.get()));
  CHECK(table.Joined(LocalAddress(joins.client.get())).size == 0);  // once
  CHECK(table.DropLate(now + seconds(4)));
  CHECK_FALSE(stays.HasEnded());
  CHECK_FALSE(table.DropLate(now + seconds(5)));
  CHECK(stays.HasEnded());
  CHECK_FALSE(joins.HasEnded());
}

}  // namespace
}  // namespace ddprun::rendezvous
