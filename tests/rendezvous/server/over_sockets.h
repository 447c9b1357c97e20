// Coordinators of this process, and agents that reach them.
#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_OVER_SOCKETS_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_OVER_SOCKETS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/connect.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/tls/identity.h"
#include "tests/rendezvous/server/event_log.h"

namespace ddprun::rendezvous {

using Identity = std::shared_ptr<const TlsIdentity>;

// Of who has that token.
Identity IdentityOf(const std::string& token);

// On every address; port 0 is one that the system chooses. Without an identity all is plain.
std::unique_ptr<Coordinator> StartListening(Policy policy, uint16_t port = 0,
                                            Identity identity = nullptr,
                                            const Clock& clock = SteadyClock());

// An agent elsewhere: it never hosts.
RendezvousOptions RemoteOptions(uint16_t port, Policy policy,
                                const std::string& host = "127.0.0.1");
// What it is told goes to `log`.
std::unique_ptr<RendezvousClient> Connect(uint16_t port, Policy policy, EventLog& log,
                                          const std::string& host = "127.0.0.1",
                                          const std::string& run_id = "run-1");
// As Connect, in TLS.
std::unique_ptr<RendezvousClient> ConnectInSecret(uint16_t port, Policy policy, EventLog& log,
                                                  Identity identity);

// The one node of a job, which has joined and stays whatever strangers do meanwhile.
class LoneMember {
 public:
  // REQUIRES: the coordinator's policy is TestPolicy(1, 1), and `identity` its own.
  explicit LoneMember(const Coordinator& coordinator, Identity identity = nullptr);
  // It has never lost its contact, and ends its job.
  void CheckUndisturbed();

 private:
  EventLog log_;
  std::unique_ptr<RendezvousClient> client_;
  Round round_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_OVER_SOCKETS_H_
