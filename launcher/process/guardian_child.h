// The guardian's own side, from fork to exit.
#ifndef DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_
#define DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_

namespace ddprun::launcher {

class SessionTable;

// Runs in the forked child, which may come from a process with threads: async-signal-safe
// throughout. `pipe` is the read end, `mark` the job's mark. Never returns.
[[noreturn]] void RunGuardian(int pipe, const char* mark, SessionTable& sessions);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_
