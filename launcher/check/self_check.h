// --check: a node that looks at itself before it joins a job.
#ifndef DDPRUN_LAUNCHER_CHECK_SELF_CHECK_H_
#define DDPRUN_LAUNCHER_CHECK_SELF_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/cli/environment.h"

namespace ddprun::launcher {

struct SelfCheckProgram {
  std::vector<std::string> argv;
  std::vector<std::string> environment;
};
// `executable check ...` over so many workers on this node alone; it exits with 1 if not all are
// well. `visible_devices`: CUDA_VISIBLE_DEVICES of the workers; "": as it is.
SelfCheckProgram SelfCheckOf(const std::string& executable, int workers,
                             const std::string& visible_devices, const Environment& environment);

// Runs `ddprun check` over so many workers on this node alone, under this process's own limits, and
// says in one line that they are well. An error says why this node should not join; the table has
// been written to stderr. What is slow here is so among this node's workers alone: whether all of
// them are, only other nodes tell. `visible_devices`: CUDA_VISIBLE_DEVICES of the workers; "": as
// it is.
// REQUIRES: this process has one thread.
absl::Status CheckThisNode(int workers, const std::string& visible_devices,
                           const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_SELF_CHECK_H_
