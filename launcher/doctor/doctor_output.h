// The doctor's two forms of output. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OUTPUT_H_
#define DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OUTPUT_H_

#include <string>

#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {

// For people: a line for each thing that was looked at, its advice below it, the verdict last.
std::string DoctorText(const DoctorFacts& facts);

// For programs: one object. What was not found is null; sizes are bytes; no limit is null.
std::string DoctorJson(const DoctorFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OUTPUT_H_
