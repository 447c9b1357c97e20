// Coordinators of this process, and agents that reach them.
#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_OVER_SOCKETS_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_OVER_SOCKETS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/client/connect.h"
#include "rendezvous/server/coordinator.h"
#include "tests/rendezvous/server/event_log.h"

namespace ddprun::rendezvous {

// On every address; port 0 is one that the system chooses.
std::unique_ptr<Coordinator> StartListening(Policy policy, uint16_t port = 0);

// An agent elsewhere: it never hosts.
RendezvousOptions RemoteOptions(uint16_t port, Policy policy,
                                const std::string& host = "127.0.0.1");
// What it is told goes to `log`.
std::unique_ptr<RendezvousClient> Connect(uint16_t port, Policy policy, EventLog& log,
                                          const std::string& host = "127.0.0.1",
                                          const std::string& run_id = "run-1");

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_OVER_SOCKETS_H_
