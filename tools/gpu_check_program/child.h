// Programs that the check starts, each with a time limit.
#ifndef DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CHILD_H_
#define DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CHILD_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::gpu_check {

using Clock = std::chrono::steady_clock;

struct Command {
  std::vector<std::string> argv;           // the first is looked up in PATH
  std::map<std::string, std::string> env;  // on top of our own
};

// The exit code of one that finds no GPU.
inline constexpr int kExitNoGpu = 120;

struct Outcome {
  int exit_code = 0;  // 128+n for signal n; 127 when it could not be started
  bool is_timed_out = false;
  std::string out, err;  // the last megabyte of each
  double seconds = 0;

  bool ok() const { return exit_code == 0 && !is_timed_out; }
  // What a line "value NAME NUMBER" or "text NAME ..." of stdout gave; none without one.
  std::optional<double> Value(const std::string& name) const;
  std::string Text(const std::string& name) const;
  // Why it failed, in one line: the last line of stderr that says something.
  std::string Complaint() const;
};

// Runs to the end, or to `deadline`: then SIGTERM, again after a moment (ddprun then kills its
// workers), then SIGKILL, and no longer than some seconds after it. Only signals, waitpid and
// pipes: works where pidfd_open, cgroups or PR_SET_PDEATHSIG are missing.
Outcome RunUntil(const Command& command, Clock::time_point deadline);

}  // namespace ddprun::gpu_check

#endif  // DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CHILD_H_
