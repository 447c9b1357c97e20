// A worker's environment and command line as a dump may hold them. [pure]
#ifndef DDPRUN_LAUNCHER_DUMP_SHOWN_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_DUMP_SHOWN_ENVIRONMENT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Of what /proc/PID/environ holds, sorted by name: "NAME=value" for variables that steer a training
// job (RANK, NCCL_*, PYTHON*, SLURM_*, ...), with what looks like a password in a value masked;
// "NAME=set" for all whose names speak of a secret; below them the names alone of all others.
std::string ShownEnvironment(absl::string_view environ);

// Of what /proc/PID/cmdline holds: the words, secrets masked, on one line.
std::string ShownCommand(absl::string_view cmdline);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_SHOWN_ENVIRONMENT_H_
