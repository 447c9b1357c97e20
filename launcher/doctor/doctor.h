// `ddprun doctor`: looks, prints, returns the exit code.
#ifndef DDPRUN_LAUNCHER_DOCTOR_DOCTOR_H_
#define DDPRUN_LAUNCHER_DOCTOR_DOCTOR_H_

#include <string>

#include "launcher/cli/cli.h"
#include "launcher/cli/environment.h"
#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {

// Prints on stdout; on stderr the first reason, where CUDA is required and training with it could
// not run here. REQUIRES: this process has one thread.
int RunDoctor(const DoctorOptions& options, const Environment& environment);

// For people: a line for each thing that was looked at, its advice below it, the verdict last.
std::string DoctorText(const DoctorFacts& facts);

// For programs: one object. What was not found is null; sizes are bytes; no limit is null.
std::string DoctorJson(const DoctorFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_DOCTOR_H_
