// The cgroups of jobs under test.
#ifndef DDPRUN_TESTS_LAUNCHER_PROCESS_CGROUP_TESTING_H_
#define DDPRUN_TESTS_LAUNCHER_PROCESS_CGROUP_TESTING_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun::testing {

// Sees to it that this process and those it starts can have cgroups: where none is mounted or it is
// read-only, by a mount in a mount namespace of this process's own. Empty, or why it cannot be had.
// Call before the process has a second thread.
std::string ProvideCgroups();

// The directory of the cgroup of `pid`; empty where it cannot be seen.
std::string CgroupOf(pid_t pid);
// Whether `pid` is in the cgroup of a job.
bool IsInJobCgroup(pid_t pid);

// A command that executes its arguments where no cgroup v2 is mounted; empty where this is not
// permitted.
std::vector<std::string> WithoutCgroups();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PROCESS_CGROUP_TESTING_H_
