// A ddprun for tests alone, of which one defence is off: disarm/defences.py lists them, and copies
// of the product's sources ask here.
#ifndef DDPRUN_TESTS_FAULTS_DISARM_DISARM_H_
#define DDPRUN_TESTS_FAULTS_DISARM_DISARM_H_

#include <string>
#include <vector>

namespace ddprun::testing {

// Read once, before main: also children between fork and exec ask it.
extern const int number_off;

inline bool IsOff(int number) { return number == number_off; }
// In order of their numbers, from 1 on.
const std::vector<std::string>& MutantNames();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_DISARM_DISARM_H_
