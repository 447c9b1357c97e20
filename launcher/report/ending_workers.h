// Which living workers are about to end. When a worker aborts as it has lost a peer, that peer may
// still take its time to end, and is the cause all the same.
#ifndef DDPRUN_LAUNCHER_REPORT_ENDING_WORKERS_H_
#define DDPRUN_LAUNCHER_REPORT_ENDING_WORKERS_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/last_words.h"

namespace ddprun::launcher {

struct LivingWorker {
  int local_rank = 0;
  int pid = 0;
  std::string error_file;  // "": it may leave none
};

// A chain of exceptions has some tracebacks, each with a few lines a frame.
inline constexpr size_t kEndingTailLines = 200;

// Whether a worker says that it has lost a peer or a connection: in its error file or the note
// beside it, in a traceback at the end of `words`, its stderr, or in the last lines of that.
bool TellsOfLostPeer(const std::string& error_file, std::string_view words);

// The local ranks of those of `workers` whose end is under way. One of these is enough:
// - an error file,
// - a traceback of Python's at the end of stderr,
// - the process runs its exit in the kernel, which takes long for large memories and GPUs, and does
//   not do so by an abort of its own,
// - it is the only one without a socket, of three and more.
// One whose error file or stderr tells of a peer that left or of a lost connection is none.
// Takes 100 ms for each worker at most, where its output does not end. For a FileThread.
std::set<int> EndingWorkers(const std::vector<LivingWorker>& workers, const TailReader& tail,
                            const std::string& proc = "/proc");

// Whether /proc/PID/stat tells of a process that runs its exit in the kernel, but for one by
// SIGABRT: PF_EXITING of linux/sched.h among its flags, field 9 of proc(5), and its status in
// field 52. False for a text that does not read so.
bool IsExiting(std::string_view stat);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_ENDING_WORKERS_H_
