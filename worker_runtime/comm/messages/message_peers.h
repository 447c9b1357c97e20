// Where the ranks of a group take messages, as rank 0 tells all of them. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_PEERS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_PEERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker_runtime/comm/nonce.h"

namespace ddp::internal {

struct MessagePeers {
  struct Place {
    std::string address;
    uint16_t port = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  Nonce hello{};              // what who connects says first
  Nonce answer{};             // and is answered
  std::vector<Place> places;  // by rank
  friend bool operator==(const MessagePeers&, const MessagePeers&) = default;
};

// For the store: 4 bytes for each rank, and each address once for a run of ranks that have it.
std::string Encode(const MessagePeers& peers);
// InvalidArgument for what was not encoded here, or is not of `world_size` ranks.
absl::StatusOr<MessagePeers> DecodeMessagePeers(const std::string& text, int world_size);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_PEERS_H_
