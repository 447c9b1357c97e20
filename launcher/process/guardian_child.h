// The guardian's own side, from fork to exit.
#ifndef DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_
#define DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_

#include <cstddef>
#include <cstdint>

namespace ddprun::launcher {

// What the agent writes into the pipe. Eight bytes, so a write is never split (PIPE_BUF).
struct GuardianMessage {
  int32_t is_added = 0;  // else removed
  int32_t session = 0;
};

// More workers than any node has; the mark finds those beyond.
inline constexpr size_t kMaxGuardedSessions = 1024;

// Runs in the forked child, which may come from a process with threads: async-signal-safe
// throughout. `pipe` is the read end, `mark` the job's mark. Never returns.
[[noreturn]] void RunGuardian(int pipe, const char* mark);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_
