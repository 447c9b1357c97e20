#include "worker_runtime/comm/shm/peer_watch.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "tests/support/no_memory.h"
#include "tests/support/subprocess.h"

namespace ddp::internal {
namespace {

TEST_CASE("peer watch: it ends also where poll() fails each time") {
  auto memory = ShmDomain::CreateMemory(2);
  REQUIRE(memory.ok());
  const auto domain = ShmDomain::Map(*std::move(memory), {0, 1}, 0);
  REQUIRE(domain.ok());
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const ddprun::UniqueFd other(ends[1]);
  std::vector<PeerLink> links;
  links.push_back({1, ddprun::UniqueFd(ends[0]), nullptr});
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = 0;  // poll() takes no more places than that
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  auto watch = PeerWatch::Start(**domain, std::move(links));
  CHECK(watch.ok());
  watch->reset();
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("peer watch: it needs no memory of its own") {
  auto memory = ShmDomain::CreateMemory(2);
  REQUIRE(memory.ok());
  const auto domain = ShmDomain::Map(*std::move(memory), {0, 1}, 0);
  REQUIRE(domain.ok());
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  ddprun::UniqueFd other(ends[1]);
  std::vector<PeerLink> links;
  links.push_back({1, ddprun::UniqueFd(ends[0]), nullptr});
  const ddprun::testing::NoMemoryOnNewThreads none;
  auto watch = PeerWatch::Start(**domain, std::move(links));
  REQUIRE(watch.ok());
  other.Reset();
  CHECK(ddprun::testing::Eventually([&] { return !(*domain)->PeerError().ok(); }));
}

}  // namespace
}  // namespace ddp::internal
