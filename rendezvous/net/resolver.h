// Names to addresses.
#ifndef DDPRUN_RENDEZVOUS_NET_RESOLVER_H_
#define DDPRUN_RENDEZVOUS_NET_RESOLVER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

struct Resolution {
  enum class Outcome {
    kFound,
    kNoSuchName,  // the resolver is sure: trying again is of no use
    kTemporary,   // it may answer later
  };
  Outcome outcome = Outcome::kTemporary;
  std::string error;                     // "Name or service not known"
  std::vector<SocketAddress> addresses;  // kFound: at least one, in the order to try
};

// Replaceable in tests.
using Resolver = std::function<Resolution(const std::string& host, uint16_t port)>;

// getaddrinfo, which may take minutes and cannot be interrupted: for a thread that nobody waits
// for. IP addresses are answered at once.
Resolution ResolveName(const std::string& host, uint16_t port);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_RESOLVER_H_
