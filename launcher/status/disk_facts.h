// Whether a folder in which the job writes is on a file system that is full, or nearly.
#ifndef DDPRUN_LAUNCHER_STATUS_DISK_FACTS_H_
#define DDPRUN_LAUNCHER_STATUS_DISK_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

struct DiskSpace {
  int64_t total_bytes = 0, free_bytes = 0;  // free for us: not what is kept for root
  int64_t total_files = 0, free_files = 0;  // inodes; 0 in total: there is no such limit
  bool is_read_only = false;
};

// Pure. A problem "disk" when less than 1 % is free, but 100 MiB at least and 10 GiB at most: 1 %
// of a large file system is room enough. Of one below 1 GiB (a container's /dev/shm) 10 % counts.
// The like for files: less than 1 %, and fewer than 10,000. Read-only ones are not for writing.
std::optional<Problem> JudgeDisk(const std::string& path, const DiskSpace& space);

// The problems of these folders, one for each file system, in their order; a folder that is not
// there has none. A quota of the user's is not seen. May hang for ever on a network file system:
// for a FileThread.
std::vector<Problem> ReadDiskProblems(const std::vector<std::string>& paths);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_DISK_FACTS_H_
