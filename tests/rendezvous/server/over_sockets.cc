#include "tests/rendezvous/server/over_sockets.h"

#include <utility>

#include <doctest/doctest.h>

#include "rendezvous/client/grpc_rendezvous_client.h"

namespace ddprun::rendezvous {

std::unique_ptr<Coordinator> StartListening(Policy policy, uint16_t port) {
  Coordinator::Options options;
  options.policy = std::move(policy);
  options.listen = Coordinator::Listen{.host = "", .port = port};
  auto coordinator = Coordinator::Start(std::move(options));
  REQUIRE_MESSAGE(coordinator.ok(), coordinator.status().ToString());
  return *std::move(coordinator);
}

std::unique_ptr<RendezvousClient> Connect(uint16_t port, Policy policy, EventLog& log,
                                          const std::string& host, const std::string& run_id) {
  GrpcClientOptions options;
  options.policy = std::move(policy);
  options.policy.run_id = run_id;
  options.endpoint = Endpoint{host, port, run_id};
  return StartGrpcClient(std::move(options), log.handler());
}

}  // namespace ddprun::rendezvous
