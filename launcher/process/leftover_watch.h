// The grace, after a round, of what workers leave outside their process groups: daemons, helpers in
// sessions of their own. They become the agent's children when their parents end.
#ifndef DDPRUN_LAUNCHER_PROCESS_LEFTOVER_WATCH_H_
#define DDPRUN_LAUNCHER_PROCESS_LEFTOVER_WATCH_H_

#include <algorithm>
#include <string>

#include "launcher/process/process.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

class Guardian;
class JobCgroup;

// Tells them to end once all workers have, and kills them when their time is over. One run of a
// worker group after the other; used on its thread.
class LeftoverWatch {
 public:
  struct Signs {
    std::string job_mark{};              // may be empty
    const JobCgroup* cgroup = nullptr;   // may be null; outlives this
    const Guardian* guardian = nullptr;  // may be null; is none of them; outlives this
    const char* proc = "/proc";
  };

  // `grace`: from SIGTERM to SIGKILL where no Stop has said otherwise.
  LeftoverWatch(const ProcessTable& table, Signs signs, Duration grace);

  // Another run begins.
  void Begin();
  // They are told to end no sooner, unless one of the next two is called.
  void KeepUntil(TimePoint at) { keep_until_ = std::max(keep_until_, at); }
  // They have until `at`, or until what an earlier call said.
  void KillAt(TimePoint at) {
    kill_at_ = std::min(kill_at_, at);
    keep_until_ = TimePoint::min();
  }
  void KillNow() { KillAt(TimePoint::min()); }
  // Time in which nothing could run is no part of their grace.
  void Postpone(Duration pause);

  // Signals what is there by the time it has left. REQUIRES: all workers have ended.
  bool AreLeft(TimePoint now);
  // When to look again at them, or at a group whose leader has ended, where nothing has happened
  // since `quiet_since`: ever more rarely, and when their time is over.
  TimePoint LookAt(TimePoint now, TimePoint quiet_since) const;
  // Whether they get SIGKILL by now, if there are any.
  bool IsOver(TimePoint now) const { return kill_at_ <= now; }

 private:
  static constexpr TimePoint kNever = TimePoint::max();

  // Signals all that are there; how many.
  int Tell(int signal);

  const ProcessTable& table_;
  const Signs signs_;
  const Duration grace_;

  bool are_told_ = false;
  TimePoint keep_until_ = TimePoint::min();
  TimePoint kill_at_ = kNever;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_LEFTOVER_WATCH_H_
