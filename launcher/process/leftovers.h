// Finds and ends what is left of a job on this machine: also processes that moved into a session of
// their own. They are known by the job's cgroup, where there is one, and by the mark that every
// worker carries in its environment and passes on.
#ifndef DDPRUN_LAUNCHER_PROCESS_LEFTOVERS_H_
#define DDPRUN_LAUNCHER_PROCESS_LEFTOVERS_H_

#include <sys/types.h>

#include <string>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

class JobCgroup;
class SessionTable;

// The variable of a worker's environment that holds the job's mark.
inline constexpr char kJobMarkVariable[] = "DDPRUN_JOB_MARK";

// A mark nobody else has: random, and "<outer>/<random>" when this agent is itself part of a marked
// job, so that the outer job's end finds the inner job's processes too.
std::string NewJobMark();

// Who was there as a walk began and had gone when it came to them. What such a process had just
// started may have been missed: a walk reads names ahead.
struct Vanished {
  bool is_any = false;   // of all processes
  bool is_ours = false;  // it belonged to the job
};

// Which processes belong to the job. Plain pointers, because the guardian may not allocate.
struct LeftoverQuery {
  const char* mark = "";             // whose environment holds it, or an inner job's; "": nobody's
  const char* cgroup = "";           // and who is in it (JobCgroup::name), or below it
  SessionTable* sessions = nullptr;  // and, when not null, members of these, which it notes
  pid_t parent = 0;                  // and, when not 0, its children
  pid_t exiting_parent = 0;          // and, when not 0, those of its children that exit: their
                                     // memory may be gone, and the mark with it, and files, locks
                                     // and devices not yet
  const pid_t* groups = nullptr;     // and, up to a 0, who is in these process groups, their
                                     // leaders excepted
  // Called for each that is found, with its number; may be null. Must be as safe as the walk.
  void (*visit)(void* context, pid_t pid) = nullptr;
  void* context = nullptr;
  Vanished* vanished = nullptr;    // may be null: is told what vanished; never set to false
  pid_t spare = 0;                 // but never this one (the guardian), nor the caller
  const pid_t* helpers = nullptr;  // nor, up to a 0, these and the sessions that they lead
  const char* proc = "/proc";
};

// One walk over /proc. Sends `signal` (0: none) to each living process that belongs to the job;
// returns how many there were, those included that ended as they were about to be signalled.
// Async-signal-safe. A process being started in this instant may be missed.
int SignalLeftovers(const LeftoverQuery& query, int signal);

// The agent's last act: kills what is in `cgroup` (may be null) and what carries `mark` until two
// walks in a row find none. False when some are still there after `limit` (a process that sleeps in
// the kernel). One system call when the agent, a subreaper, has no children left. Reaps nobody, so
// workers may still be watched. Sleeps and reads /proc: not on the agent's thread.
bool KillLeftovers(const std::string& mark, const JobCgroup* cgroup, Duration limit);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_LEFTOVERS_H_
