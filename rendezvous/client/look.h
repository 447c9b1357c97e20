// One look at the endpoint: where is it, and who listens there? May take as long as the resolver.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_LOOK_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LOOK_H_

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/client/contact_core.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::rendezvous {

struct LookResult {
  Looked seen;
  SocketAddress address;  // of the answer; size 0: there is none
};

// Resolves the endpoint's host, whose addresses are looked at in turn until the coordinator of the
// run answers. `is_port_here`: first at the port of this machine. In TLS where there is an
// `identity`. `interrupt` ends all but the resolver.
LookResult LookAt(const ContactOptions& options, bool is_port_here, const Resolver& resolve,
                  const std::shared_ptr<const TlsIdentity>& identity, const Interrupt& interrupt);

struct LookedUp {
  Looked seen;                           // kFound, kNoName or kNameLater
  std::vector<SocketAddress> addresses;  // kFound
};
// Whether `name` resolves, and to what.
LookedUp LookUp(const std::string& name, const Resolver& resolve);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LOOK_H_
