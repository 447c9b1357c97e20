// Looks for the coordinator of a run behind "HOST:PORT" until it answers.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_SEEKER_H_
#define DDPRUN_RENDEZVOUS_CLIENT_SEEKER_H_

#include <cstdint>
#include <string>

#include "rendezvous/client/probe.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/resolver.h"

namespace ddprun::rendezvous {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  std::string run_id;
};

// One attempt: the name resolved anew, each address looked at in turn.
struct SeekResult {
  ProbeResult probe;      // of the address that answered best; kOurs: `address` is it
  SocketAddress address;  // size 0: the name was not resolved
  bool is_final = false;  // the name does not exist: trying again is of no use
};
SeekResult SeekOnce(const Endpoint& endpoint, const Resolver& resolve, const Interrupt& interrupt);

// "no coordinator ... at HOST:PORT": what `result`, which is not kOurs, means to the user.
std::string SeekErrorText(const Endpoint& endpoint, const SeekResult& result);

// "HOST:PORT", with the address behind the name where it differs: "node1:29400 (10.0.0.1)".
std::string PlaceText(const Endpoint& endpoint, const SocketAddress& address);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_SEEKER_H_
