// The command line of `ddprun doctor`. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OPTIONS_H_
#define DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OPTIONS_H_

#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

struct DoctorOptions {
  bool requires_cuda = false;
  bool is_json = false;
  bool is_help = false;
};

// What `ddprun doctor --help` prints.
extern const char kDoctorHelp[];

// `args` is what follows the word doctor. An error is InvalidArgument and one line.
absl::StatusOr<DoctorOptions> ParseDoctorOptions(std::span<const std::string> args);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OPTIONS_H_
