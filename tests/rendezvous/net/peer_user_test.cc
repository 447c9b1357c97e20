#include "rendezvous/net/peer_user.h"

#include <doctest/doctest.h>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/socket_address.h"
#include "tests/support/scarce_descriptors.h"
#include "tests/support/skip.h"

namespace ddprun::rendezvous {
namespace {

using Sources = PeerUsers::SourcesForTest;

const Sources kSockDiag = {.has_sock_diag = true, .tables = ""};
const Sources kTables = {.has_sock_diag = false};
const Sources kNothing = {.has_sock_diag = false, .tables = "/proc/no such folder"};

// Kernels can be built without sock_diag, and filters take it away; the tables are everywhere.
bool IsHere(const Sources& sources) {
  return sources.has_sock_diag ? PeerUsers(sources).DoesKernelTell()
                               : access("/proc/net/tcp", R_OK) == 0;
}

std::vector<Sources> SourcesHere() {
  std::vector<Sources> here;
  for (const Sources& sources : {kSockDiag, kTables}) {
    if (IsHere(sources)) here.push_back(sources);
  }
  return here;
}

// Both ends of a connection over loopback; the first is `user`'s.
struct Connection {
  explicit Connection(uid_t user, const char* at = "127.0.0.1", const char* to = "127.0.0.1") {
    auto socket = ListenOn(at, 0);
    REQUIRE(socket.ok());
    const SocketAddress place = *ParseIp(to, LocalPort(socket->get()));
    // Of this thread alone.
    syscall(SYS_setfsuid, user);
    theirs.Reset(::socket(place.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    syscall(SYS_setfsuid, geteuid());
    REQUIRE(connect(theirs.get(), place.get(), place.size) == 0);
    while (!ours.is_open()) ours.Reset(accept(socket->get(), nullptr, nullptr));
  }
  UniqueFd theirs, ours;
};

TEST_CASE("peer user: the kernel tells who is at the other end of a connection here") {
  const std::vector<Sources> here = SourcesHere();
  if (here.empty()) return testing::SkipTest("the kernel tells of nobody here");
  for (const Sources& sources : here) {
    CAPTURE(sources.has_sock_diag);
    for (const auto& [at, to] : {std::pair("127.0.0.1", "127.0.0.1"),
                                 {"::1", "::1"},
                                 {"", "127.0.0.1"},
                                 {"127.0.0.1", "::ffff:127.0.0.1"}}) {
      CAPTURE(at);
      const Connection own(geteuid(), at, to);
      CHECK(PeerUsers(sources).UserOf(own.ours.get()) == geteuid());
      CHECK_FALSE(PeerUsers(sources).IsOfOthers(own.ours.get()));
      if (geteuid() != 0) continue;
      const Connection others(65534, at, to);
      CHECK(PeerUsers(sources).UserOf(others.ours.get()) == 65534);
      CHECK(PeerUsers(sources).IsOfOthers(others.ours.get()));
    }
  }
  if (geteuid() != 0) return testing::SkipTest("only root makes sockets for other users");
}

TEST_CASE("peer user: the kernel tells whose a socket is that listens here") {
  const std::vector<Sources> here = SourcesHere();
  if (here.empty()) return testing::SkipTest("the kernel tells of nobody here");
  for (const Sources& sources : here) {
    CAPTURE(sources.has_sock_diag);
    for (const char* host : {"127.0.0.1", "::1", "", "0.0.0.0"}) {
      CAPTURE(host);
      auto own = ListenOn(host, 0);
      REQUIRE(own.ok());
      const auto at = ParseIp(*host == ':' ? "::1" : "127.0.0.1", LocalPort(own->get()));
      CHECK(PeerUsers(sources).ListenerAt(*at) == geteuid());
      own->Reset();
      CHECK_FALSE(PeerUsers(sources).ListenerAt(*at));
    }
    if (geteuid() != 0) continue;
    syscall(SYS_setfsuid, 65534);
    auto others = ListenOn("127.0.0.1", 0);
    syscall(SYS_setfsuid, geteuid());
    REQUIRE(others.ok());
    CHECK(PeerUsers(sources).ListenerAt(LocalAddress(others->get())) == 65534);
  }
  if (geteuid() != 0) return testing::SkipTest("only root makes sockets for other users");
}

// The kernel would call it root's.
TEST_CASE("peer user: an end that has been closed is nobody's") {
  const std::vector<Sources> here = SourcesHere();
  if (here.empty()) return testing::SkipTest("the kernel tells of nobody here");
  for (const Sources& sources : here) {
    CAPTURE(sources.has_sock_diag);
    Connection closed(geteuid());
    REQUIRE(send(closed.theirs.get(), "words", 5, 0) == 5);
    closed.theirs.Reset();
    char words[5];
    REQUIRE(recv(closed.ours.get(), words, sizeof(words), MSG_WAITALL) == 5);
    CHECK_FALSE(PeerUsers(sources).UserOf(closed.ours.get()));
    CHECK(PeerUsers(sources).IsOfOthers(closed.ours.get()));
  }
}

TEST_CASE("peer user: an end that nobody has accepted yet is nobody's") {
  const std::vector<Sources> here = SourcesHere();
  if (here.empty()) return testing::SkipTest("the kernel tells of nobody here");
  for (const Sources& sources : here) {
    CAPTURE(sources.has_sock_diag);
    auto door = ListenOn("127.0.0.1", 0);
    REQUIRE(door.ok());
    const SocketAddress place = LocalAddress(door->get());
    const UniqueFd waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(waiting.get(), place.get(), place.size) == 0);
    CHECK_FALSE(PeerUsers(sources).UserOf(waiting.get()));
  }
}

TEST_CASE("peer user: where nothing tells of anybody everybody passes, and it can be asked") {
  PeerUsers users(kNothing);
  CHECK_FALSE(users.DoesKernelTell());
  const Connection others(geteuid() == 0 ? 65534 : geteuid());
  CHECK_FALSE(users.UserOf(others.ours.get()));
  CHECK_FALSE(users.IsOfOthers(others.ours.get()));
}

TEST_CASE("peer user: without a descriptor nobody unknown passes, and with one users are told") {
  const std::vector<Sources> here = SourcesHere();
  if (here.empty()) return testing::SkipTest("the kernel tells of nobody here");
  for (const Sources& sources : here) {
    CAPTURE(sources.has_sock_diag);
    const Connection own(geteuid());
    std::optional<PeerUsers> users;
    {
      const testing::NoMoreDescriptors none(getpid());
      users.emplace(sources);
      CHECK_FALSE(users->UserOf(own.ours.get()));
      CHECK(users->IsOfOthers(own.ours.get()));
    }
    CHECK(users->UserOf(own.ours.get()) == geteuid());
    CHECK_FALSE(users->IsOfOthers(own.ours.get()));
    const testing::ScarceDescriptors one;
    CHECK(users->UserOf(own.ours.get()) == geteuid());
    // It is taken by the socket that is asked of.
    CHECK(PeerUsers(sources).DoesKernelTell());
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
