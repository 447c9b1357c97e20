// One look at an address: who listens there?
#ifndef DDPRUN_RENDEZVOUS_CLIENT_PROBE_H_
#define DDPRUN_RENDEZVOUS_CLIENT_PROBE_H_

#include <chrono>
#include <string>

#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

struct ProbeResult {
  enum class Outcome {
    kOurs,         // the coordinator of this run
    kOtherRun,     // a coordinator of another run: `text` is its id
    kForeign,      // something that answers otherwise: `text` is the beginning of that
    kClosed,       // accepted, and closed without a word
    kSilent,       // accepted, and no word within the time (a stopped process does that)
    kRefused,      // the host says that nobody listens
    kUnreachable,  // `text` says why
    kInterrupted,
  };
  Outcome outcome = Outcome::kUnreachable;
  std::string text;  // one phrase for people, without control characters
};

inline constexpr Duration kConnectTimeout = std::chrono::seconds(2);
inline constexpr Duration kHelloTimeout = std::chrono::seconds(5);

// Connects and exchanges the greeting of rendezvous/wire/hello.h.
ProbeResult Probe(const SocketAddress& address, const std::string& run_id,
                  const Interrupt& interrupt);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_PROBE_H_
