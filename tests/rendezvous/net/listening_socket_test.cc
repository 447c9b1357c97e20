#include "rendezvous/net/listening_socket.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <cerrno>

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

TEST_CASE("listening socket: an address of no interface is refused with the cause") {
  sockaddr_in elsewhere = Loopback(0);
  elsewhere.sin_addr.s_addr = htonl(0xc6336401);  // 198.51.100.1, for documentation only
  const UniqueFd fd = Listen(elsewhere);
  const int error = errno;
  CHECK_FALSE(fd.is_open());
  CHECK(error == EADDRNOTAVAIL);
  CHECK(rendezvous::LocalPort(-1) == 0);
}

}  // namespace
}  // namespace ddprun
