#include "tests/support/store_server.h"

#include <utility>

#include <doctest/doctest.h>

namespace ddprun::testing {

std::unique_ptr<rendezvous::StoreServer> StartStoreServer(
    const rendezvous::StoreServer::Options& options, const Clock& clock) {
  auto server = rendezvous::StoreServer::Start(options, clock);
  REQUIRE_MESSAGE(server.ok(), server.status().ToString());
  return *std::move(server);
}

}  // namespace ddprun::testing
