// The workers' sessions, which the agent tells its guardian.
#ifndef DDPRUN_LAUNCHER_PROCESS_SESSION_TABLE_H_
#define DDPRUN_LAUNCHER_PROCESS_SESSION_TABLE_H_

#include <sys/types.h>

#include <cstddef>

namespace ddprun::launcher {

// The agent writes it as workers come and go; the guardian reads it once the agent is gone. It lies
// in memory that both share. One slot says one thing (a session, or 0), so each write counts by
// itself; what the agent wrote before it died the guardian sees, because it learns of the death
// from the kernel.
//
// A number that is free again belongs to a stranger sooner or later, so a session stands here only
// while it can be ours: from the start of its leader, whom the agent has not reaped yet, until the
// agent has seen the process group empty. Between the last member's end and that look, 20 ms as a
// rule, the number stands here unowned: a stranger would have to get it then, which takes a whole
// turn of the kernel's counter of pids. A worker that the agent gave up (Unkillable) stays until
// the guardian finds its session empty.
//
// One writer at a time: the agent's main thread, then the guardian.
class SessionTable {
 public:
  // Beyond kCapacity a session is not noted: the cgroup and the job's mark find its processes.
  void Add(pid_t session);
  void Remove(pid_t session);
  bool is_empty() const;

  // The guardian's. Async-signal-safe.
  // Whether a process of this session is meant; notes that there is one.
  bool Meet(pid_t session);
  // After a walk over all processes that called Meet for each: removes the sessions that it has not
  // met and whose process group is empty. The group alone tells too little: it is the leader's, and
  // a shell with job control gives every job another one in the same session.
  void RemoveEnded();

  // As many workers as the command line takes; eight pages.
  static constexpr size_t kCapacity = 4096;

 private:
  struct Slot {
    pid_t session = 0;    // 0: free
    bool is_met = false;  // since the last RemoveEnded
  };
  Slot slots_[kCapacity];
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SESSION_TABLE_H_
