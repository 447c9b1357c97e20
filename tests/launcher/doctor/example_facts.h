// Facts of two machines, for tests to change one thing of.
#ifndef DDPRUN_TESTS_LAUNCHER_DOCTOR_EXAMPLE_FACTS_H_
#define DDPRUN_TESTS_LAUNCHER_DOCTOR_EXAMPLE_FACTS_H_

#include "launcher/doctor/doctor_facts.h"

namespace ddprun::testing {

// Two GPUs, everything there, nothing to advise.
launcher::DoctorFacts GoodMachine();
// A virtual machine without a GPU, as a developer has it.
launcher::DoctorFacts PlainMachine();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_DOCTOR_EXAMPLE_FACTS_H_
