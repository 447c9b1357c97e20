// Where the kernel tells of a process's memory cgroup, and what stands there. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_MEMORY_CGROUP_H_
#define DDPRUN_LAUNCHER_STATUS_MEMORY_CGROUP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

struct MemoryCgroup {
  bool is_v2 = false;
  // The process's own, its parent, and so on to the top of what is mounted here: in a container
  // that may be its own already.
  std::vector<std::string> directories;
  friend bool operator==(const MemoryCgroup&, const MemoryCgroup&) = default;
};

// By /proc/PID/mountinfo and /proc/PID/cgroup. None where there is no such hierarchy, or none that
// shows the process.
std::optional<MemoryCgroup> FindMemoryCgroup(const std::string& mountinfo,
                                             const std::string& cgroups);

// Of memory.max, memory.limit_in_bytes and the like. None: "max", v1's number that means it, or no
// number.
std::optional<int64_t> ParseCgroupBytes(std::string_view text);

// The number behind `key` in lines of "key number": memory.events, memory.oom_control, memory.stat;
// also "key: number kB", as of /proc/meminfo, in bytes.
std::optional<int64_t> ParseKeyedNumber(std::string_view text, std::string_view key);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_MEMORY_CGROUP_H_
