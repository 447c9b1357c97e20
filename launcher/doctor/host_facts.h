// What this machine has, as far as files and system calls tell it: CUDA is not opened here.
#ifndef DDPRUN_LAUNCHER_DOCTOR_HOST_FACTS_H_
#define DDPRUN_LAUNCHER_DOCTOR_HOST_FACTS_H_

#include <string>

#include "launcher/cli/environment.h"
#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {

// Where the kernel's files are; tests have folders of their own.
struct SystemFolders {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string shm = "/dev/shm";
  std::string cuda = "/usr/local/cuda";
};

DriverFacts ReadDriverFacts(const Environment& environment, const SystemFolders& folders = {});
// Everything but the GPU probe's report.
HostFacts ReadHostFacts(const Environment& environment, const SystemFolders& folders = {});

// For tests: the toolkit's version out of its version.json; empty: it is not there.
std::string ToolkitVersion(const std::string& version_json);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_HOST_FACTS_H_
