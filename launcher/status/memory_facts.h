// How much memory the job has on this machine, how much of it is used, and the OOM killer's kills.
#ifndef DDPRUN_LAUNCHER_STATUS_MEMORY_FACTS_H_
#define DDPRUN_LAUNCHER_STATUS_MEMORY_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Whose memory, and where the kernel's files are: tests have a folder of their own.
struct MemoryPlaces {
  std::string process = "self";  // the job's cgroup is the agent's: its workers inherit it
  std::string root{};            // in front of every path
};

struct MemoryFacts {
  // Of the cgroup with the smallest limit, from the process's own upwards; of the machine where no
  // cgroup limits it to less.
  std::optional<int64_t> limit;
  std::optional<int64_t> used;  // without files that the kernel may forget at once
  std::optional<int64_t> peak;  // with them, since the cgroup was made; the machine has none
  bool is_cgroup = false;
  // Processes of the process's own cgroup (v2: and of those below it) that any OOM killer has
  // killed. None where the kernel does not count.
  std::optional<int64_t> oom_kills;
  friend bool operator==(const MemoryFacts&, const MemoryFacts&) = default;
};

// Reads a dozen small files of the kernel's, 0.2 ms. They do not hang but on a sick machine: for a
// FileThread.
MemoryFacts ReadMemoryFacts(const MemoryPlaces& places = {});

// Counts from its first look on.
class MemoryWatch {
 public:
  // Fills in the node's memory and what was killed for want of it; of the last minute that is a
  // problem, whichever process it was.
  void Look(TimePoint now, const MemoryFacts& facts, NodeView& node);

 private:
  bool has_looked_ = false;
  std::optional<int64_t> kills_before_, kills_;  // of all jobs: at the first look, and at the last
  std::optional<TimePoint> killed_at_;           // the last one
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_MEMORY_FACTS_H_
