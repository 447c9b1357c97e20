// Identifiers that must not be mixed up, as distinct types.
#ifndef DDPRUN_RENDEZVOUS_BASE_IDS_H_
#define DDPRUN_RENDEZVOUS_BASE_IDS_H_

#include <compare>
#include <cstdint>
#include <string>

namespace ddprun {

// One start of a coordinator. Grows with every start; 0 means "none seen yet".
struct Epoch {
  uint64_t value = 0;
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

// One formation of the job under an epoch. The first is 1; 0 means "none yet".
struct Round {
  uint64_t value = 0;
  friend auto operator<=>(const Round&, const Round&) = default;
};

// One job, from its first round to its verdict: 128 random bits, drawn by its first coordinator and
// kept by those that are started again for it. 0: none known yet. Epochs and rounds of two
// instances say nothing about each other.
struct JobInstance {
  uint64_t high = 0;
  uint64_t low = 0;
  bool is_known() const { return high != 0 || low != 0; }
  friend auto operator<=>(const JobInstance&, const JobInstance&) = default;
};

// One connection between an agent and the coordinator, numbered by the coordinator's driver and
// never used twice within one epoch.
struct SessionId {
  uint64_t value = 0;
  friend auto operator<=>(const SessionId&, const SessionId&) = default;
};

// One agent process: unique in the job, stable over reconnects of that process.
struct NodeId {
  std::string value;
  friend auto operator<=>(const NodeId&, const NodeId&) = default;
};

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_IDS_H_
