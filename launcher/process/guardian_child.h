// The guardian's own side, from fork to exit.
#ifndef DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_
#define DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_

namespace ddprun::launcher {

class FolderNote;
class SessionTable;

// What belongs to the job. Plain pointers, because the guardian may not allocate.
struct GuardianOrders {
  const char* mark = nullptr;
  SessionTable* sessions = nullptr;
  const FolderNote* folder = nullptr;
  // Of the job's cgroup (job_cgroup.h); null where it has none.
  const char* cgroup_name = nullptr;
  const char* cgroup_path = nullptr;
  const char* cgroup_kill_path = nullptr;
};

// Runs in the forked child, which may come from a process with threads: async-signal-safe
// throughout. `pipe` is the read end. Never returns.
[[noreturn]] void RunGuardian(int pipe, const GuardianOrders& orders);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_GUARDIAN_CHILD_H_
