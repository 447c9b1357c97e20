// Names to addresses, without ever blocking a thread that must hear a signal.
#ifndef DDPRUN_RENDEZVOUS_NET_RESOLVER_H_
#define DDPRUN_RENDEZVOUS_NET_RESOLVER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

struct Resolution {
  enum class Outcome {
    kFound,
    kNoSuchName,  // the resolver is sure: trying again is of no use
    kTemporary,   // it may answer later, or has not answered in time
    kInterrupted,
  };
  Outcome outcome = Outcome::kTemporary;
  std::string error;                     // "Name or service not known"
  std::vector<SocketAddress> addresses;  // kFound: at least one, in the order to try
};

// Replaceable in tests.
using Resolver = std::function<Resolution(const std::string& host, uint16_t port, Duration timeout,
                                          const Interrupt& interrupt)>;

// getaddrinfo on a thread of its own, which is left behind (and ends by itself) when it answers
// after `timeout`. IP addresses are answered at once.
Resolution ResolveName(const std::string& host, uint16_t port, Duration timeout,
                       const Interrupt& interrupt);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_RESOLVER_H_
