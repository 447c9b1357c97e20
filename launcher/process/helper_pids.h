// Programs that ddprun runs for itself beside the workers: a health check, a stack reader. They are
// children of this process, and no part of the job.
#ifndef DDPRUN_LAUNCHER_PROCESS_HELPER_PIDS_H_
#define DDPRUN_LAUNCHER_PROCESS_HELPER_PIDS_H_

#include <sys/types.h>

#include <mutex>
#include <vector>

namespace ddprun::launcher {

// While somebody holds it, no helper starts: whoever forks one holds it from the fork to
// AddHelper(). Any thread.
std::unique_lock<std::mutex> HoldHelpers();

// REQUIRES, both: the caller holds them. A helper leads a session of its own.
void AddHelper(pid_t pid);
std::vector<pid_t> Helpers();

// These take hold of them.
//
// Who has added it reaps it, and nobody else.
bool IsHelper(pid_t pid);
// It was reaped, or was killed in vain (`is_held`): the kernel may hold some of its process group,
// which stays in Helpers() until that is gone. Sends this process a SIGCHLD: a sweep over its
// children may have waited at this one (ProcessTable).
void RemoveHelper(pid_t pid, bool is_held);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_HELPER_PIDS_H_
