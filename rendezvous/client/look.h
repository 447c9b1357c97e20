// One look at the endpoint: where is it, and who listens there? May take as long as the resolver.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_LOOK_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LOOK_H_

#include <chrono>
#include <string>

#include "rendezvous/client/contact_core.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

struct LookResult {
  Looked seen;
  SocketAddress address;  // of the answer; size 0: there is none
};

// Resolves `host`, whose addresses are looked at in turn until the coordinator of the run `run_id`
// answers. `is_port_here`: first at `port` of this machine. `interrupt` ends all but the resolver.
LookResult LookAt(const std::string& host, uint16_t port, const std::string& run_id,
                  bool is_port_here, const Resolver& resolve, const Interrupt& interrupt);

// Whether `name` resolves: kFound, kNoName or kNameLater.
Looked LookUp(const std::string& name, const Resolver& resolve);

inline constexpr Duration kConnectTimeout = std::chrono::seconds(2);
inline constexpr Duration kHelloTimeout = std::chrono::seconds(5);

// Connects to one address and exchanges the greeting of rendezvous/wire/hello.h.
Looked Probe(const SocketAddress& address, const std::string& run_id, const Interrupt& interrupt);

// A loopback address, or one of this machine's interfaces. Debian maps a machine's own name to
// 127.0.1.1.
bool IsThisMachine(const SocketAddress& address);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LOOK_H_
