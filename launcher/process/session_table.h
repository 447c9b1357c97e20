// The workers' sessions, in memory that the agent shares with its guardian.
#ifndef DDPRUN_LAUNCHER_PROCESS_SESSION_TABLE_H_
#define DDPRUN_LAUNCHER_PROCESS_SESSION_TABLE_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>

namespace ddprun::launcher {

// The agent writes it as workers come and go; the guardian reads it once the agent is gone, and
// until then neither wakes the other. One slot says one thing (a session, or 0), so each write
// counts by itself and there is no order to keep between two; what the agent wrote before it died
// the guardian sees, because it learns of the death from the kernel.
//
// A number that is free again belongs to a stranger sooner or later, so a session stands here only
// while it can be ours: from the start of its leader, whom the agent has not reaped yet, until the
// agent has seen the process group empty. Between the last member's end and that look the number
// stands here unowned: microseconds after a reap, as a rule 20 ms where another process reaped. A
// stranger would have to get it then, which takes a whole turn of the kernel's counter of pids. A
// worker that the agent gave up (Unkillable) stays until the guardian finds its group empty.
//
// One writer at a time: the agent's main thread, then the guardian.
class SessionTable {
 public:
  struct Unmap {
    void operator()(SessionTable* table) const;
  };
  using Pointer = std::unique_ptr<SessionTable, Unmap>;

  // An empty table, which processes forked from now on share. Null, with errno set, when there is
  // no memory.
  static Pointer Map();

  // Beyond kCapacity a session is not noted: the cgroup and the job's mark find its processes.
  void Add(pid_t session);
  void Remove(pid_t session);
  // Removes the sessions whose process group is empty. Async-signal-safe.
  void RemoveEnded();

  // Async-signal-safe.
  bool Holds(pid_t session) const;

  // More workers than any node has; one page.
  static constexpr size_t kCapacity = 1024;

 private:
  pid_t slots_[kCapacity];  // 0: free
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SESSION_TABLE_H_
