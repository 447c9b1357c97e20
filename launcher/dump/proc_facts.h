// What /proc tells of a process that runs no code of ours.
//
// `cmdline`, `environ` and `maps` are read under the process's memory lock: the kernel may hold
// them back for as long as a page of it does not come (a dead file server, a driver). All else here
// answers at once.
#ifndef DDPRUN_LAUNCHER_DUMP_PROC_FACTS_H_
#define DDPRUN_LAUNCHER_DUMP_PROC_FACTS_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/status/process_facts.h"

namespace ddprun::launcher {

// None: there is no such process.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// Whether it has not ended. A zombie has.
bool IsAlive(const std::optional<ProcessStat>& stat);

// Whether a thread of it is stopped or traced, or a stop is on its way to one. Of the first 4096
// threads.
bool IsStoppedOrAboutTo(pid_t pid);

// The file, at most `limit` bytes of it. An error names it.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t limit);
// /proc/PID/NAME, at most `limit` bytes of it. An error names the file.
absl::StatusOr<std::string> ReadProcFile(pid_t pid, const char* name, size_t limit);

// What /proc/PID/NAME (exe, fd/3) stands for; empty: not known or not permitted.
std::string ReadProcLink(pid_t pid, absl::string_view name);

// The process that traces it; 0: none.
pid_t TracerOf(pid_t pid);

// Where the kernel says its main thread waits, as far as we may know: "in futex (kernel:
// futex_wait_queue)", "in read of descriptor 0, pipe:[4711] (kernel: pipe_read)". Empty: it runs,
// or nothing is told.
std::string KernelWait(pid_t pid);

// The value of a variable in what /proc/PID/environ holds; empty: not set.
std::string VariableIn(absl::string_view environ, absl::string_view name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_PROC_FACTS_H_
