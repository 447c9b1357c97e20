#include "rendezvous/net/listening_socket.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <string>
#include <vector>

#include "rendezvous/net/socket_address.h"
#include "tests/support/loopback.h"

namespace ddprun {
namespace {

using testing::Loopback;

UniqueFd Listen(const sockaddr_in& address) {
  return rendezvous::OpenListeningSocket(reinterpret_cast<const sockaddr*>(&address),
                                         sizeof address, 8);
}

TEST_CASE("listening socket: the port is known, taken, and free again when it is closed") {
  UniqueFd first = Listen(Loopback(0));
  REQUIRE(first.is_open());
  const uint16_t port = rendezvous::LocalPort(first.get());
  CHECK(port != 0);
  CHECK((fcntl(first.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((fcntl(first.get(), F_GETFD) & FD_CLOEXEC) != 0);
  {
    const UniqueFd second = Listen(Loopback(port));
    const int error = errno;
    CHECK_FALSE(second.is_open());
    CHECK(error == EADDRINUSE);
  }
  first.Reset();
  CHECK(Listen(Loopback(port)).is_open());
}

TEST_CASE("listening socket: what it accepts sends small packets where they are asked for") {
  const UniqueFd listener = Listen(Loopback(0));
  rendezvous::AvoidLargePackets(listener.get());
  const sockaddr_in address = Loopback(rendezvous::LocalPort(listener.get()));
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const UniqueFd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(accepted.is_open());
  for (const int fd : {client.get(), accepted.get()}) {
    int largest = 0;
    socklen_t size = sizeof largest;
    REQUIRE(getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &largest, &size) == 0);
    CHECK(largest <= 1220);
  }
}

TEST_CASE("listening socket: an address of no interface is refused with the cause") {
  sockaddr_in elsewhere = Loopback(0);
  elsewhere.sin_addr.s_addr = htonl(0xc6336401);  // 198.51.100.1, for documentation only
  const UniqueFd fd = Listen(elsewhere);
  const int error = errno;
  CHECK_FALSE(fd.is_open());
  CHECK(error == EADDRNOTAVAIL);
  CHECK(rendezvous::LocalPort(-1) == 0);
  const absl::StatusOr<UniqueFd> named = rendezvous::ListenOn("198.51.100.1", 0);
  REQUIRE_FALSE(named.ok());
  CHECK(absl::IsUnavailable(named.status()));
  CHECK(named.status().message() ==
        "listen on 198.51.100.1:0: this machine has no such address (EADDRNOTAVAIL): take one of "
        "those that \"ip address\" lists, or leave the host out for all of them");
}

bool Answers(const char* ip, uint16_t port) {
  const auto address = rendezvous::ParseIp(ip, port);
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(client.get(), address->get(), address->size) == 0;
}

TEST_CASE("listening socket: by one port of several addresses, and of no other") {
  const auto listening = rendezvous::ListenOnEach({"127.0.0.2", "127.0.0.3"}, 0);
  REQUIRE_MESSAGE(listening.ok(), listening.status().ToString());
  CHECK_FALSE(listening->is_everywhere);
  REQUIRE(listening->sockets.size() == 2);
  const uint16_t port = rendezvous::LocalPort(listening->sockets[0].get());
  for (const char* host : {"127.0.0.2", "127.0.0.3"}) CHECK(Answers(host, port));
  CHECK_FALSE(Answers("127.0.0.4", port));
}

TEST_CASE(
    "listening socket: where none that others reach is left of the addresses, all are taken") {
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>(), {"127.0.0.2", "198.51.100.1"}, {"127.0.0.2", "fe80::1%no"}}) {
    const auto listening = rendezvous::ListenOnEach(hosts, 0);
    REQUIRE_MESSAGE(listening.ok(), listening.status().ToString());
    CHECK(listening->is_everywhere);
    REQUIRE(listening->sockets.size() == 1);
    CHECK(Answers("127.0.0.3", rendezvous::LocalPort(listening->sockets[0].get())));
  }
}

TEST_CASE("listening socket: one port of several addresses, of which one is taken, is taken") {
  const UniqueFd other = Listen(Loopback(0));
  const auto listening =
      rendezvous::ListenOnEach({"127.0.0.2", "127.0.0.1"}, rendezvous::LocalPort(other.get()));
  CHECK(absl::IsAlreadyExists(listening.status()));
}

TEST_CASE("listening socket: a port that is kept is nobody's until it is listened on") {
  const auto kept = rendezvous::KeepPort();
  REQUIRE(kept.ok());
  const uint16_t port = rendezvous::LocalPort(kept->get());
  CHECK_FALSE(Answers("127.0.0.1", port));
  const UniqueFd listener = Listen(Loopback(port));
  REQUIRE(listener.is_open());
  CHECK(Answers("127.0.0.1", port));
  CHECK_FALSE(Answers("127.0.0.2", port));
}

}  // namespace
}  // namespace ddprun
