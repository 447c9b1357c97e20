// Faults planted in copies of the product's cores, to show that the simulator finds them.
// tests/sim/mutants/mutants.py lists them.
#ifndef DDPRUN_TESTS_SIM_MUTANT_H_
#define DDPRUN_TESTS_SIM_MUTANT_H_

#include <string>
#include <vector>

namespace ddprun::sim {

// Whether that fault, from 1 on, is switched on.
bool IsMutant(int number);
// Switches this one on and all others off; 0: none.
void SetMutant(int number);
// In order of their numbers.
const std::vector<std::string>& MutantNames();

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_MUTANT_H_
