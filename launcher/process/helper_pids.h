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
// It has ended, by itself or `is_killed`: then the kernel may hold some of its process group, which
// stays a helper until that is gone. Takes hold of them itself.
void RemoveHelper(pid_t pid, bool is_killed);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_HELPER_PIDS_H_
