// What the kernel's log says of processes that the OOM killer has killed. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_OOM_LINES_H_
#define DDPRUN_LAUNCHER_STATUS_OOM_LINES_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddprun::launcher {

struct OomKill {
  enum class Scope {
    kUnknown,  // kernels before 5.1 say it elsewhere
    kCgroup,   // a cgroup was at its limit
    kMachine,  // the machine (or its part that the process may use) had no memory left
  };
  int pid = 0;  // in the pid namespace of the machine
  Scope scope = Scope::kUnknown;
  std::optional<int64_t> anonymous_bytes;  // that it held
  friend bool operator==(const OomKill&, const OomKill&) = default;
};

// The text of a record: "6,339,5140900,-;text" as /dev/kmsg has it, or "<6>[    5.140900] text" as
// syslog(2) does. Empty for what the kernel did not write itself: whoever may write to /dev/kmsg
// can say anything there.
std::string_view KernelText(std::string_view record);

// "Memory cgroup out of memory: Killed process 71 (python) total-vm:8kB, anon-rss:4kB, ..."
std::optional<OomKill> ParseOomKill(std::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_OOM_LINES_H_
