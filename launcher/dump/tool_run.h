// A program that is asked for its output, with a deadline.
#ifndef DDPRUN_LAUNCHER_DUMP_TOOL_RUN_H_
#define DDPRUN_LAUNCHER_DUMP_TOOL_RUN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/process/exit_status.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

inline constexpr size_t kMaxToolOutput = 256 * 1024;

struct ToolRun {
  std::string start_error;  // `clone: Cannot allocate memory`: it never ran; all else is empty
  std::string out;          // its stdout, kMaxToolOutput at most
  std::string err;          // its stderr, the first 4 KiB
  bool is_late = false;     // killed at the deadline
  bool is_cut = false;      // killed when it had written too much
  bool has_ended = false;   // false: killed, and the kernel holds it still
  ExitStatus end;           // unknown where the agent's own walk over its children was first
};

// Runs `argv` (argv[0] a path) with `environment` ("NAME=value"), stdin and all descriptors but
// stdout and stderr closed or /dev/null, in a session of its own, all signals at their defaults,
// and as the OOM killer's first choice: it is to cost no worker its memory. It is killed at the
// deadline, with whatever it has started in its process group, and when this thread ends. So it is
// as soon as `cancel_fd` can be read (-1: never). Returns at the latest a second after that. Any
// thread.
ToolRun RunTool(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                TimePoint deadline, const Clock& clock, int cancel_fd = -1);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_TOOL_RUN_H_
