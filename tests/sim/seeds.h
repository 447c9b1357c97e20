// Many seeds, and what to say of them.
#ifndef DDPRUN_TESTS_SIM_SEEDS_H_
#define DDPRUN_TESTS_SIM_SEEDS_H_

#include <cstdint>
#include <string>

#include "tests/sim/cluster.h"
#include "tests/sim/scenario.h"

namespace ddprun::sim {

struct SeedRange {
  uint64_t first = 1;
  uint64_t count = 10'000;
  int node_count = 0;       // 0: the seed says
  bool is_loud = false;     // print all that happens
  bool is_elected = false;  // of jobs with etcd
  Tally tally = {};         // out
};

// Runs them, prints every breach with its seed and its smallest list of faults, then what was done;
// the last line is "10000 seeds, 0 breaches". Returns how many seeds broke something.
uint64_t RunSeeds(SeedRange& range);

// The scenario with as few faults as still break the same, by leaving out ever smaller parts.
// REQUIRES: `scenario` breaks something.
Scenario Minimise(const Scenario& scenario);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SEEDS_H_
