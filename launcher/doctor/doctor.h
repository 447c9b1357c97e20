// `ddprun doctor`: looks, prints, returns the exit code.
#ifndef DDPRUN_LAUNCHER_DOCTOR_DOCTOR_H_
#define DDPRUN_LAUNCHER_DOCTOR_DOCTOR_H_

#include "absl/status/status.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/environment.h"

namespace ddprun::launcher {

// Prints on stdout. FailedPrecondition with the first reason when CUDA is required and training
// with it could not run here. REQUIRES: this process has one thread.
absl::Status RunDoctor(const DoctorOptions& options, const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_DOCTOR_H_
