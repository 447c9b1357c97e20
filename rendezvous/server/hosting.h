// Does this agent host the coordinator? And what does it mean that the port is taken?
#ifndef DDPRUN_RENDEZVOUS_SERVER_HOSTING_H_
#define DDPRUN_RENDEZVOUS_SERVER_HOSTING_H_

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/client/seeker.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/resolver.h"
#include "rendezvous/server/connect.h"

namespace ddprun::rendezvous {

// This machine as others may name it.
struct MachineNames {
  std::string host_name;               // HostName
  std::vector<std::string> addresses;  // IpText of every interface
};
MachineNames ThisMachine();

// What can be said without asking a resolver; nullopt: only the name's addresses can tell.
std::optional<bool> HostsByName(const RendezvousOptions& options, const MachineNames& machine);

// One of `addresses` is this machine's. A loopback address always is: Debian maps a machine's own
// name to 127.0.1.1.
bool HostsByAddress(const std::vector<SocketAddress>& addresses, const MachineNames& machine);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_HOSTING_H_
