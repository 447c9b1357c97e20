// Reads what process_facts.h understands, for the workers of this node.
#ifndef DDPRUN_LAUNCHER_STATUS_PROCESS_READER_H_
#define DDPRUN_LAUNCHER_STATUS_PROCESS_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "launcher/status/process_facts.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// One sample for each of `pids`, in their order; none for a process that has ended (a zombie has),
// and for those that are not come to within `limit`. For a FileThread.
//
// With a worker count the children of its main thread, theirs, and so on, a hundred for each
// worker: the processes of a DataLoader, or the program inside a shell. Those that another thread
// started count once they have been waited for. Walking all of /proc to find them by their group
// would cost a machine with thousands of processes more than this may. Where the kernel does not
// list children (no CONFIG_PROC_CHILDREN) the worker counts alone.
//
// CPU time, measured: 27 us a worker and 14 us for each process that it has started. Every 5 s, 64
// workers are 0.04 % of a core, and 0.2 % with eight processes of a DataLoader each.
std::vector<std::optional<ProcessSample>> ReadProcesses(const std::vector<int>& pids,
                                                        Duration limit = std::chrono::seconds(1),
                                                        const std::string& proc = "/proc");

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_PROCESS_READER_H_
