#include "tests/rendezvous/server/over_sockets.h"

#include <utility>

#include <doctest/doctest.h>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/tunnels.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {

Identity IdentityOf(const std::string& token) {
  auto identity = TlsIdentity::OfToken(token);
  REQUIRE_MESSAGE(identity.ok(), identity.status().ToString());
  return *std::move(identity);
}

std::unique_ptr<Coordinator> StartListening(Policy policy, uint16_t port, Identity identity,
                                            const Clock& clock) {
  Coordinator::Options options;
  options.policy = std::move(policy);
  options.identity = std::move(identity);
  options.listen = Coordinator::Listen{.host = "", .port = port};
  auto coordinator = Coordinator::Start(std::move(options), clock);
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
  return ConnectRendezvous(std::move(options), log.handler(), SteadyClock());
}

std::unique_ptr<RendezvousClient> ConnectInSecret(uint16_t port, Policy policy, EventLog& log,
                                                  Identity identity) {
  RendezvousOptions options = RemoteOptions(port, std::move(policy));
  auto tunnels = Tunnels::Start(std::move(identity));
  REQUIRE_MESSAGE(tunnels.ok(), tunnels.status().ToString());
  options.tunnels = *std::move(tunnels);
  return ConnectRendezvous(std::move(options), log.handler(), SteadyClock());
}

LoneMember::LoneMember(const Coordinator& coordinator, Identity identity) {
  const uint16_t port = coordinator.port();
  const Policy policy = TestPolicy(1, 1);
  client_ = identity == nullptr ? Connect(port, policy, log_)
                                : ConnectInSecret(port, policy, log_, std::move(identity));
  client_->Join(TestNode("a"));
  const auto assigned = log_.Await<Assigned>();
  REQUIRE_MESSAGE(assigned, log_.Text());
  round_ = assigned->assignment.round;
}

void LoneMember::CheckUndisturbed() {
  client_->ReportSucceeded(round_, StopRead::kNo);
  CHECK_MESSAGE(log_.Await<Concluded>(), log_.Text());
  CHECK(log_.Text() != Contains("contact lost"));
}

}  // namespace ddprun::rendezvous
