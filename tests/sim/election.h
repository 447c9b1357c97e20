// Several candidates for one job's leadership over a model of etcd, in virtual time: the product's
// LeaderCore under lost and late answers, copies that come late, silence, stops and deaths.
#ifndef DDPRUN_TESTS_SIM_ELECTION_H_
#define DDPRUN_TESTS_SIM_ELECTION_H_

#include <cstdint>
#include <string>

namespace ddprun::sim {

// What the candidates' transactions lack, to show that it is missed.
enum class ElectionMutant {
  kNone,
  kNoFence,         // a record is written whoever leads
  kNoCompare,       // a record is written whatever was written since
  kNoRevision,      // a place is taken whoever has it
  kTalksOverLease,  // a leader goes on without its lease
};

struct ElectionResult {
  std::string breach;  // empty: none
  int takeovers = 0;   // leaders behind the first
  int losses = 0;      // leaders that were told that they are none any more
  int records = 0;     // that were told to be durable
  uint64_t hash = 0;   // of all that happened
};

// Faults for a minute, then none, then the job's end. The promises:
//   one record follows another: none is kept that is not its writer's newest, or whose writer does
//   not lead; a later leader finds every record that was told to be durable, or a later one
//   nobody says anything while another leads
//   behind the faults somebody leads within 20 s, and can write
//   behind the job's end, and the leases', nothing is left
ElectionResult RunElection(uint64_t seed, ElectionMutant mutant);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_ELECTION_H_
