#include "tests/rendezvous/server/over_sockets.h"

#include <utility>

#include <doctest/doctest.h>

namespace ddprun::rendezvous {

std::unique_ptr<Coordinator> StartListening(Policy policy, uint16_t port) {
  Coordinator::Options options;
  options.policy = std::move(policy);
  options.listen = Coordinator::Listen{.host = "", .port = port};
  auto coordinator = Coordinator::Start(std::move(options));
  REQUIRE_MESSAGE(coordinator.ok(), coordinator.status().ToString());
  return *std::move(coordinator);
}

RendezvousOptions RemoteOptions(uint16_t port, Policy policy, const std::string& host) {
  RendezvousOptions options;
  options.mode = ContactOptions::Mode::kDynamic;
  options.policy = std::move(policy);
  options.endpoint_host = host;
  options.endpoint_port = port;
  options.is_host = false;
  return options;
}

std::unique_ptr<RendezvousClient> Connect(uint16_t port, Policy policy, EventLog& log,
                                          const std::string& host, const std::string& run_id) {
  RendezvousOptions options = RemoteOptions(port, std::move(policy), host);
  options.policy.run_id = run_id;
  return ConnectRendezvous(std::move(options), log.handler());
}

}  // namespace ddprun::rendezvous
