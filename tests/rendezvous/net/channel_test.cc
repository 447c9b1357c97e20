#include "rendezvous/net/channel.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/listening_socket.h"

namespace ddprun::rendezvous {
namespace {

// A coordinator that a thousand agents reach at once answers late. Agents that hang up and come
// again would then keep it from ever answering.
TEST_CASE("channel: does not hang up on a coordinator that answers late") {
  PrepareGrpc();
  const auto listener = ListenOn("127.0.0.1", 0);
  REQUIRE(listener.ok());
  const auto channel = MakeChannel(LocalAddress(listener->get()));
  channel->GetState(/*try_to_connect=*/true);
  pollfd waiting{listener->get(), POLLIN, 0};
  REQUIRE(poll(&waiting, 1, 30'000) == 1);
  const UniqueFd connection(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(connection.is_open());
  pollfd end{connection.get(), POLLRDHUP, 0};
  CHECK(poll(&end, 1, 1000) == 0);
}

}  // namespace
}  // namespace ddprun::rendezvous
