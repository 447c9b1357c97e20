// One greeting: a connection to an address, and what it says of who listens there.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_GREET_H_
#define DDPRUN_RENDEZVOUS_CLIENT_GREET_H_

#include <memory>
#include <optional>

#include "rendezvous/client/contact_core.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/tls/identity.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::rendezvous {

struct Greeting {
  std::optional<Hello> hello;  // a coordinator has answered
  Looked trouble;              // else: kForeign to kUnreachable
};

// Connects to `address` and exchanges the greeting of rendezvous/wire/hello.h, in TLS where there
// is an `identity`. Waits 8 s at most, and as long again for a plain greeting where TLS is not
// answered; `interrupt` ends it. A node whose own certificate has expired connects and says
// nothing.
Greeting Greet(const SocketAddress& address, const std::shared_ptr<const TlsIdentity>& identity,
               const Interrupt& interrupt);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_GREET_H_
