// How one worker of this node ended: the one value for it, from the moment the agent sees it until
// the reports are written. [pure]
#ifndef DDPRUN_LAUNCHER_AGENT_WORKER_END_H_
#define DDPRUN_LAUNCHER_AGENT_WORKER_END_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct WorkerEnd {
  int local_rank = 0;
  int pid = 0;        // 0: it could not be started
  int exit_code = 0;  // as `ddprun` would pass it on: 128+n for signal n, 126/127 for exec errors
  int signal = 0;     // 0: it exited by itself
  bool dumped_core = false;
  bool was_told_to_stop = false;  // by us, before its end was seen
  bool tells_lost_peer = false;   // what it wrote last tells of a peer or a connection that it lost
  std::string message{};          // "killed by signal 9 (SIGKILL)"
  TimePoint at{};                 // this machine's monotonic clock
  int64_t unix_ms = 0;            // the wall clock, for people
  std::optional<int64_t> step{};  // that it reported last
  Duration progress{0};           // from its start to that step's end, or to its own

  // It failed by its own doing: no signal ended it.
  bool has_code_of_its_own() const { return exit_code != 0 && signal == 0; }
  // Whether a peer that still takes its time to end may be the cause.
  bool may_follow() const {
    constexpr int kSigAbrt = 6;  // Linux's; <csignal> is no header for pure code
    return signal == kSigAbrt || tells_lost_peer;
  }
};

// The code as torchrun writes it: of a signal the negative number.
inline int TorchrunCode(int exit_code, int signal) { return signal != 0 ? -signal : exit_code; }

// A time for people and programs, in UTC: a job's nodes may stand in several zones.
// "2025-01-31T12:00:00.123Z" with `separator` 'T'. "" for a time that is not known: 0 and less.
std::string UtcText(int64_t unix_time_ms, char separator);
// The same of a time of which only the second is known: "2025-01-31T12:00:00Z".
std::string UtcTextOfSecond(int64_t unix_time_s, char separator);

// "rank 3", "ranks 0-1, 3".  REQUIRES: ascending, not empty.
std::string RanksText(const std::vector<int>& ranks);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_WORKER_END_H_
