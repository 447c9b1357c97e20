#include "rendezvous/net/connection_table.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/listening_socket.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

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
  CHECK(AddressText(table.Joined(LocalAddress(joins.client.get()))) ==
        AddressText(PeerAddress(joins.client.get())));
  CHECK(table.Joined(LocalAddress(joins.client.get())).size == 0);  // once
  CHECK(table.DropLate(now + seconds(4)));
  CHECK_FALSE(stays.HasEnded());
  CHECK_FALSE(table.DropLate(now + seconds(5)));
  CHECK(stays.HasEnded());
  CHECK_FALSE(joins.HasEnded());
}

}  // namespace
}  // namespace ddprun::rendezvous
