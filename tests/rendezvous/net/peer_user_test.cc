#include "rendezvous/net/peer_user.h"

#include <doctest/doctest.h>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/socket_address.h"
#include "tests/support/skip.h"

namespace ddprun::rendezvous {
namespace {

// Both ends of a connection over loopback; the first is `user`'s.
struct Connection {
  explicit Connection(uid_t user) {
    auto socket = ListenOn("127.0.0.1", 0);
    REQUIRE(socket.ok());
    const SocketAddress place = LocalAddress(socket->get());
    // Of this thread alone.
    syscall(SYS_setfsuid, user);
    theirs.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    syscall(SYS_setfsuid, geteuid());
    REQUIRE(connect(theirs.get(), place.get(), place.size) == 0);
    while (!ours.is_open()) ours.Reset(accept(socket->get(), nullptr, nullptr));
  }
  UniqueFd theirs, ours;
};

TEST_CASE("peer user: the kernel tells who is at the other end of a connection here") {
  Connection own(geteuid());
  if (!PeerUsers().UserOf(own.ours.get())) return testing::SkipTest("no sock_diag here");
  CHECK(PeerUsers().UserOf(own.ours.get()) == geteuid());
  CHECK_FALSE(PeerUsers().IsOfOthers(own.ours.get()));
  if (geteuid() != 0) return testing::SkipTest("only root makes sockets for other users");
  Connection others(65534);
  CHECK(PeerUsers().UserOf(others.ours.get()) == 65534);
  CHECK(PeerUsers().IsOfOthers(others.ours.get()));
}

TEST_CASE("peer user: the kernel tells whose a socket is that listens here") {
  for (const char* host : {"127.0.0.1", "::1", ""}) {
    CAPTURE(host);
    auto own = ListenOn(host, 0);
    REQUIRE(own.ok());
    const auto at = ParseIp(*host == ':' ? "::1" : "127.0.0.1", LocalPort(own->get()));
    if (!PeerUsers().ListenerAt(*at)) return testing::SkipTest("no sock_diag here");
    CHECK(PeerUsers().ListenerAt(*at) == geteuid());
    own->Reset();
    CHECK_FALSE(PeerUsers().ListenerAt(*at));
  }
  if (geteuid() != 0) return testing::SkipTest("only root makes sockets for other users");
  syscall(SYS_setfsuid, 65534);
  auto others = ListenOn("127.0.0.1", 0);
  syscall(SYS_setfsuid, geteuid());
  REQUIRE(others.ok());
  CHECK(PeerUsers().ListenerAt(LocalAddress(others->get())) == 65534);
}

// The kernel would call it root's.
TEST_CASE("peer user: an end that has been closed is nobody's") {
  Connection closed(geteuid());
  if (!PeerUsers().UserOf(closed.ours.get())) return testing::SkipTest("no sock_diag here");
  REQUIRE(send(closed.theirs.get(), "words", 5, 0) == 5);
  closed.theirs.Reset();
  char words[5];
  REQUIRE(recv(closed.ours.get(), words, sizeof(words), MSG_WAITALL) == 5);
  CHECK_FALSE(PeerUsers().UserOf(closed.ours.get()));
  CHECK(PeerUsers().IsOfOthers(closed.ours.get()));
}

}  // namespace
}  // namespace ddprun::rendezvous
