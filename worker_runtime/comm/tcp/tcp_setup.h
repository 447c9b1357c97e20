// How the ranks of neighbouring nodes come to be connected.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_TCP_SETUP_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_TCP_SETUP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ddp/store.h"
#include "worker_runtime/comm/nonce.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/comm/tcp/chain.h"
#include "worker_runtime/comm/tcp/link_key.h"

namespace ddp::internal {

// One end of a link to be.
struct Endpoint {
  int rank = -1;        // -1: there is no such neighbour
  std::string host;     // Capabilities::host
  std::string address;  // Capabilities::address
  Nonce nonce{};
};

struct ChainLinks {
  Link previous;
  Link next;
};

// Connects `self` with its neighbours. Of two ranks the lower one listens, unless only the other
// has an address that a different host can reach; on a port that the kernel chooses, on that
// address alone, and only until those it expects have come: once the group has formed no rank has
// one of these ports open. Who connects must say the listener's nonce, which is in this round's
// store alone, and gets its own one back: so both know the other's job, round and rank before
// anything else is read. A connection that says something else, or not enough within 4 s, is
// dropped; at most 64 are looked at together, 32 bytes each. With a `key` both prove that they have
// it instead (link_key.h), and all that follows is sealed. DeadlineExceeded and Unavailable name
// the rank, Unauthenticated who has another key.
absl::StatusOr<ChainLinks> ConnectChain(Store& store, const Endpoint& self,
                                        const Endpoint& previous, const Endpoint& next,
                                        const std::shared_ptr<const LinkKey>& key,
                                        Clock::time_point deadline);

// Of a rank that cannot have its links, as ConnectChain() says by itself: who would connect has
// `why` at once, who listens for it within a second or so. Best effort.
void TellNoLinks(Store& store, int rank, const absl::Status& why);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_TCP_SETUP_H_
